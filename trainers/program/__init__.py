"""A training program from start to end."""
