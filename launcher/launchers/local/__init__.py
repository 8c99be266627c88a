"""castoff's own launcher, for one host."""
