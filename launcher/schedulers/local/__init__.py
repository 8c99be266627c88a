"""castoff's own scheduler, for one machine."""
