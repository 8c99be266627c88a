"""Python functions as jobs, with submitit's interface."""
