"""`aenv repository`: what the repository of snapshots holds, and whether it is whole."""
