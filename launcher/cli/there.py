"""The machine that a verb is for, if it is not this one."""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from castoff.launcher.remote.machine import Machine


class There(NamedTuple):
    """What a verb that reads a local job file needs to know about the machine."""

    machine: Machine
    typed: list[str]
    """The whole command, as the user typed it."""


there: contextvars.ContextVar[There | None] = contextvars.ContextVar("there", default=None)
"""The machine that the verb is for; None: this one."""
