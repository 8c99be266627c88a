"""Everything about PBS."""

NAME = "pbs"
"""As profiles call it."""

JOB_VARIABLES = ("PBS_JOBID",)
"""Any of them marks a shell in an allocation."""

TITLE = "PBS"
"""As people call it."""
