"""Reads the logs of runs: a growing file, its lines, where a rank failed, and all logs of a run at once."""
