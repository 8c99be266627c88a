"""Everything about Slurm."""

NAME = "slurm"
"""As profiles call it."""

JOB_VARIABLES = ("SLURM_JOB_ID", "SLURM_JOBID")
"""Any of them marks a shell in an allocation."""

TITLE = "Slurm"
"""As people call it."""
