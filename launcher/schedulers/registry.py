"""The schedulers that castoff knows, by their names in profiles.

To add a scheduler, create a folder next to this file whose module `scheduler` defines `SCHEDULER`, and add
its name to `NAMES`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from castoff.launcher.errors import CastoffError, shown
from castoff.launcher.schedulers.base import QueuedScheduler, Scheduler
from castoff.launcher.schedulers.variables import job_variables
from castoff.launcher.typed.suggestion import did_you_mean

if TYPE_CHECKING:
    from castoff.launcher.schedulers.script_reader import ScriptReader

NAMES = ("flux", "slurm", "pbs", "lsf", "local")
"""In the order in which castoff looks for them on a machine."""

OWN = NAMES[-1]
"""The name of castoff's own scheduler, and of the profile for this machine alone."""

HAVE_DIRECTIVES = NAMES[:-1]
"""The names of the schedulers that have directives. The schedulers are not loaded, since most jobs need only
one.
"""


@cache
def scheduler_of(name: str) -> Scheduler:
    """Return the scheduler of that name.

    Raises:
        CastoffError: there is none.
    """
    if name in NAMES:  # imported late, since most jobs need a single scheduler
        scheduler: Scheduler = import_module(f"castoff.launcher.schedulers.{name}.scheduler").SCHEDULER
        return scheduler
    hint = did_you_mean(name, NAMES)
    raise CastoffError(
        f"scheduler: is {shown(name)}, which castoff does not know{hint}; there are: {', '.join(NAMES)}"
    )


def readers() -> list[ScriptReader]:
    """Return the script readers of all schedulers that have directives."""
    return [queued_of(name).script_reader() for name in HAVE_DIRECTIVES]


def in_allocation(environ: Mapping[str, str]) -> bool:
    """Whether a variable shows that this shell is in an allocation; loads no scheduler."""
    return any(name in environ for name in job_variables())


def queued(name: str) -> QueuedScheduler | None:
    """Return the scheduler of that name if it has a queue; None for castoff's own scheduler and unknown
    names.
    """
    scheduler = scheduler_of(name) if name in NAMES else None
    return scheduler if isinstance(scheduler, QueuedScheduler) else None


def queued_of(name: str) -> QueuedScheduler:
    """Return the scheduler of that name, which must have a queue.

    Raises:
        CastoffError: there is none.
    """
    scheduler = queued(name)
    if scheduler is None:
        raise CastoffError(f"{title_of(name)} has no queue to query")
    return scheduler


def is_own(name: str) -> bool:
    """Whether this is the name of castoff's own scheduler, which runs scripts itself."""
    return name in NAMES and queued(name) is None


def title_of(name: str) -> str:
    """Return the name that messages use for a scheduler."""
    return scheduler_of(name).title if name in NAMES else "no known scheduler"
