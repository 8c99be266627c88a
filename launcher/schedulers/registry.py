"""The schedulers that castoff knows, each by the name that profiles have for it.

A new one is a folder beside this file whose module `scheduler` holds `SCHEDULER`, and its name here, twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
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
    # Late, as most jobs load one alone; each by its name, so that readers and tools can follow.
    if name == "flux":
        from castoff.launcher.schedulers.flux import scheduler as flux

        return flux.SCHEDULER
    if name == "slurm":
        from castoff.launcher.schedulers.slurm import scheduler as slurm

        return slurm.SCHEDULER
    if name == "pbs":
        from castoff.launcher.schedulers.pbs import scheduler as pbs

        return pbs.SCHEDULER
    if name == OWN:
        from castoff.launcher.schedulers.local import scheduler as local

        return local.SCHEDULER
    hint = did_you_mean(name, NAMES)
    raise CastoffError(
        f"scheduler: is {shown(name)}, which castoff does not know{hint}; there are: {', '.join(NAMES)}"
    )


def readers() -> list[ScriptReader]:
    """How the scripts of those that have directives are read."""
    from castoff.launcher.schedulers.flux import batch_scripts as flux
    from castoff.launcher.schedulers.pbs import qsub_scripts as pbs
    from castoff.launcher.schedulers.slurm import sbatch_scripts as slurm

    return [slurm.READER, pbs.READER, flux.READER]


def in_allocation(environ: Mapping[str, str]) -> bool:
    """Whether a variable says that this shell is in an allocation; loads no scheduler."""
    from castoff.launcher.schedulers import flux, pbs, slurm

    names = (*slurm.JOB_VARIABLES, *pbs.JOB_VARIABLES, *flux.JOB_VARIABLES)
    return any(name in environ for name in names)


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
