"""Root disks. For now: one read-only base file and a copy-on-write overlay per sandbox."""
