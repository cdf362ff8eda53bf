"""`aenv setup`: brings this machine to where a server can run on it. Never undoes anything on the host."""
