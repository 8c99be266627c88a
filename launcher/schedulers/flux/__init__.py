"""Flux: its words, its commands and what they answer, and nothing of any other scheduler."""

NAME = "flux"
"""As profiles call it."""

TITLE = "Flux"
"""As people call it."""
