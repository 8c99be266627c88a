"""The reports of a training: log lines, metrics files, curves."""
