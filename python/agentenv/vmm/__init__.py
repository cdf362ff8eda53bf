"""Virtual machine monitors behind one seam: start a machine, know at once when and why it ends, end it."""
