"""What a sandbox becomes: snapshots in a repository, their names, their tree, and what happens to old bytes."""
