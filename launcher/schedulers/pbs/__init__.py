"""PBS: its directives, commands and answers."""

NAME = "pbs"
"""The name in profiles."""

JOB_VARIABLES = ("PBS_JOBID",)
"""Variables of which any marks a shell in an allocation."""

TITLE = "PBS"
"""The name in messages."""
