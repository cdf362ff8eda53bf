"""The guest's side: its kernel and initramfs, and the host's line to the daemon inside."""
