"""Which sample is read when, and on which rank: each exactly once."""
