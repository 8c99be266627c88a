"""Whether castoff may read code or configuration from a path: who else can change it."""
