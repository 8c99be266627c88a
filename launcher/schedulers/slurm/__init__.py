"""All that is known of Slurm."""

NAME = "slurm"
"""As profiles call it."""

TITLE = "Slurm"
"""As people call it."""
