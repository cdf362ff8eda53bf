"""The server's own verbs: one file each, words in, a call, words out."""
