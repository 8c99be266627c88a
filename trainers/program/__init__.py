"""Training programs: command line, log, and a run from start to end."""
