"""The error raised if a checkpoint cannot be used."""

from __future__ import annotations

from castoff.trainers.configuration.fields import UserError


class CheckpointError(UserError):
    """A required checkpoint cannot be used; the text has the problem and the remedy."""
