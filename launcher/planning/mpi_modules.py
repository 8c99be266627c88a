"""Which MPI the modules in `setup` bring, and whether the launcher that the plan chose can start its ranks.

After `module load openmpi`, `mpiexec` is Open MPI's: it reads other flags than Hydra's. Ranks that another
MPI's mpiexec starts are worlds of size 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from launcher.config.job_fields import LauncherName
from launcher.launchers.commands import LAUNCHERS

_LOADED = re.compile(r"(?:^|[;&|(]|\bthen\b|\bdo\b)\s*(module|ml)\s+([^;&|#\n]+)")
_LOADS = ("load", "add", "try-load", "try-add")
_EXCHANGES = ("swap", "switch", "sw")


def contradiction(
    setup: Iterable[str], launcher: LauncherName, allowed: Sequence[LauncherName]
) -> str | None:
    """What to tell about a site's launcher that does not connect the ranks of the MPI that is loaded last."""
    found = [
        module for line in setup for module in _loaded(line) if any(_fits(module, one) for one in LAUNCHERS)
    ]
    if not found or not LAUNCHERS[launcher].mpi_modules or _fits(found[-1], launcher):
        return None
    better = next((one for one in allowed if _fits(found[-1], one)), None)
    setting = f"set launcher.name: {better}" if better else "load another MPI, or set launcher.name"
    return f"setup loads {found[-1]}, and the site's launcher is {launcher}: {setting}"


def _fits(module: str, launcher: LauncherName) -> bool:
    modules = LAUNCHERS[launcher].mpi_modules
    return bool(modules and re.match(rf"(?:{modules})(?:/|$)", module, re.IGNORECASE))


def _loaded(line: str) -> Iterator[str]:
    """The modules that a shell line loads."""
    for command, words in _LOADED.findall(line):
        shown = [word.strip("\"'") for word in words.split() if not word.startswith("-")]
        verb = shown[0] if shown else ""
        if verb in _LOADS:
            yield from shown[1:]
        elif verb in _EXCHANGES:
            yield from shown[-1:]
        elif command == "ml":  # Lmod's short form: names alone
            yield from shown
