"""Python functions as jobs, in submitit's words."""
