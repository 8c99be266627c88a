"""A training program from its first line to its last."""
