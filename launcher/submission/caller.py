"""Who submits a group: the user of this machine, or one on another machine, whose code has arrived here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NamedTuple, TypeAlias

from castoff.launcher.config.job import JobSpec


class Place(NamedTuple):
    """A job as this machine submits it, and what `submit` is called with."""

    spec: JobSpec
    environ: Mapping[str, str]
    prepare: Callable[[Path], None] | None = None
    is_code: bool = False


Placing: TypeAlias = Callable[[JobSpec], AbstractContextManager[Place]]
"""Gives a job its place, in whose working directory the job can be checked and submitted."""


class Caller(NamedTuple):
    """A user on another machine."""

    group: str
    """The id of the group: if it exists, its submission continues."""
    command: str
    """The command line that continues it, as the user types it."""
    place: Placing
    patience: float
    """Seconds to wait for an earlier command, whose connection broke, to end."""


def here(environ: Mapping[str, str]) -> Placing:
    """The place of all jobs that are submitted from the working directory."""
    return lambda spec: nullcontext(Place(spec, environ))
