"""The steps of the setup, one file each."""
