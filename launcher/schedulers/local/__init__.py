"""castoff's own scheduler, which runs jobs on one machine."""
