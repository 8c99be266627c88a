"""What is raised where a checkpoint cannot be used."""

from __future__ import annotations

from castoff.trainers.configuration.fields import UserError


class CheckpointError(UserError):
    """A checkpoint that is needed cannot be used; the text says what is wrong, and what can be done."""
