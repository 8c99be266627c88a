"""Whether castoff may read code or configuration from a path: who else could change what lies there."""
