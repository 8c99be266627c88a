"""Flux: its terms, commands and answers."""

NAME = "flux"
"""As profiles call it."""

JOB_VARIABLES = ("FLUX_ENCLOSING_ID",)
"""Any of them marks a shell in an allocation; the machine's own instance sets none."""

TITLE = "Flux"
"""As people call it."""
