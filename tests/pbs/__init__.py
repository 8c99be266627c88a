"""A PBS of several hosts on one machine, and what is tested on it."""
