"""castoff's own starter, for one host."""
