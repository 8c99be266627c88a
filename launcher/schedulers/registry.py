"""The schedulers that castoff knows, each by the name that profiles have for it.

A new one is a folder beside this file, whose module `scheduler` holds `SCHEDULER`, and its name in `NAMES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from castoff.launcher.errors import CastoffError, shown
from castoff.launcher.schedulers.base import QueuedScheduler, Scheduler
from castoff.launcher.typed.suggestion import did_you_mean

if TYPE_CHECKING:
    from castoff.launcher.schedulers.script_reader import ScriptReader

NAMES = ("flux", "slurm", "pbs", "local")
"""In the order in which they are looked for on a machine."""

OWN = NAMES[-1]
"""castoff's own, and the profile of this machine alone."""

HAVE_DIRECTIVES = NAMES[:-1]
"""Those that have directives of their own; by their names, as most jobs load one scheduler alone."""


@cache
def scheduler_of(name: str) -> Scheduler:
    """The scheduler of that name.

    Raises:
        CastoffError: there is none.
    """
    if name in NAMES:  # late, as most jobs load one alone
        found: Scheduler = import_module(f"castoff.launcher.schedulers.{name}.scheduler").SCHEDULER
        return found
    hint = did_you_mean(name, NAMES)
    raise CastoffError(
        f"scheduler: is {shown(name)}, which castoff does not know{hint}; there are: {', '.join(NAMES)}"
    )


def readers() -> list[ScriptReader]:
    """How the scripts of those that have directives are read."""
    return [queued_of(name).script_reader() for name in HAVE_DIRECTIVES]


def in_allocation(environ: Mapping[str, str]) -> bool:
    """Whether a variable says that this shell is in an allocation; loads no scheduler."""
    names = (import_module(f"castoff.launcher.schedulers.{name}").JOB_VARIABLES for name in HAVE_DIRECTIVES)
    return any(name in environ for variables in names for name in variables)


def queued(name: str) -> QueuedScheduler | None:
    """The scheduler of that name, if it has a queue; None for castoff's own, and where none is known."""
    found = scheduler_of(name) if name in NAMES else None
    return found if isinstance(found, QueuedScheduler) else None


def queued_of(name: str) -> QueuedScheduler:
    """The same, of which it is known that there is one.

    Raises:
        CastoffError: there is none.
    """
    found = queued(name)
    if found is None:
        raise CastoffError(f"{title_of(name)} has no queue that could be asked")
    return found


def is_own(name: str) -> bool:
    """Whether it is castoff's own scheduler, which sees to the run itself."""
    return name in NAMES and queued(name) is None


def title_of(name: str) -> str:
    """How people call a run's scheduler."""
    return scheduler_of(name).title if name in NAMES else "no known scheduler"
