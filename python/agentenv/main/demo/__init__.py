"""The demo: the main job end to end, as a user would do it, on a server of its own."""
