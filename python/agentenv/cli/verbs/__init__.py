"""One file per verb: its words, its options, its output."""
