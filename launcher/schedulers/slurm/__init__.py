"""Slurm: its directives, commands and answers."""

NAME = "slurm"
"""The name in profiles."""

JOB_VARIABLES = ("SLURM_JOB_ID", "SLURM_JOBID")
"""Variables of which any marks a shell in an allocation."""

TITLE = "Slurm"
"""The name in messages."""
