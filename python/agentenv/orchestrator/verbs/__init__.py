"""The verbs: one file each. A verb never undoes by hand; what it takes pushes its own release."""
