"""`aenv layer`: layer files looked at, checked and flattened by people."""
