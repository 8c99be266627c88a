"""Scripts and the jobs that castoff import makes of them, both executed in a sandbox."""
