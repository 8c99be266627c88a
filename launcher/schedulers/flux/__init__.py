"""Flux: its terms, commands and answers."""

NAME = "flux"
"""As profiles call it."""

TITLE = "Flux"
"""As people call it."""
