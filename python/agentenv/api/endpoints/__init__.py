"""One file per endpoint of the control plane: words in, one call, words out."""
