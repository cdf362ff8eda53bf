"""The HTTP door: words in, a call, words out. Takes no decision about sandboxes."""
