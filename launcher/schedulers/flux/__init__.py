"""Flux: its directives, commands and answers."""

NAME = "flux"
"""The name in profiles."""

JOB_VARIABLES = ("FLUX_ENCLOSING_ID",)
"""Variables of which any marks a shell in an allocation; the machine's own instance sets none."""

TITLE = "Flux"
"""The name in messages."""
