"""Floor 0: ids, units, errors, clock, tasks, processes, logs, metrics and small records."""
