"""The command line door: client verbs. Decides nothing."""
