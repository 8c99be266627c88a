"""All that is known of PBS."""

NAME = "pbs"
"""As profiles call it."""

TITLE = "PBS"
"""As people call it."""
