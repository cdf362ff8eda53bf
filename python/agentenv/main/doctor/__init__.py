"""`aenv doctor`: says what this host can do, and what to do about the rest. Changes nothing that lasts."""
