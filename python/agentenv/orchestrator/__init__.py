"""The lifecycle: what should be, and who may change it."""
