"""Reading runs' logs: one file that grows, its lines, where a rank failed, and following all of a run."""
