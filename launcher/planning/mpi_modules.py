"""The MPI that the modules in `setup` load, and the launcher that starts ranks of that MPI.

After `module load openmpi`, `mpiexec` is Open MPI's, which reads other flags than Hydra's. Ranks that another
MPI's mpiexec starts are MPI worlds of size 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_fields import LauncherName
from castoff.launcher.config.site import Site
from castoff.launcher.launchers.commands import LAUNCHERS
from castoff.launcher.schedulers.base import Scheduler

_COMMAND = re.compile(r"(?:^|[;&|({]|\bthen\b|\bdo\b|\belse\b)\s*(module|ml)\s+([^;&|#\n]+)", re.MULTILINE)
_LOADS = ("load", "add", "try-load", "try-add")
_EXCHANGES = ("swap", "switch", "sw")
_UNLOADS = ("unload", "rm", "del", "delete", "remove")
_CLEARS = ("purge", "reset", "restore")


class Loaded(NamedTuple):
    """The MPI whose module is loaded last."""

    module: str
    line: str
    """The line of `setup` that loads the module."""

    def __str__(self) -> str:
        return f"setup loads {self.module} ({self.line})"

    def fits(self, launcher: LauncherName) -> bool:
        """Whether a launcher can start ranks of this MPI; a launcher that does not belong to a particular MPI
        can.
        """
        return not LAUNCHERS[launcher].mpi_modules or _fits(self.module, launcher)

    def launcher(self, allowed: Sequence[LauncherName]) -> LauncherName | None:
        """The launcher that belongs to this MPI; if two do, the launcher whose mpiexec the MPI provides."""
        found = [one for one in allowed if _fits(self.module, one)]
        return max(found, key=lambda one: LAUNCHERS[one].comes_with_mpi, default=None)

    def without_pmix(self, launcher: LauncherName, flags: Iterable[str]) -> str | None:
        """Return a note on a launcher that fits, but may offer the ranks another PMI than they expect."""
        own = LAUNCHERS[launcher]
        flag = own.pmix_flag
        if not _is_one_of(self.module, own.pmix_modules) or any(one.startswith("--mpi") for one in flags):
            return None
        fix = f"set launcher.args: [{flag}] if its ranks are worlds of size 1"
        return f"{self}, and {launcher} may not offer PMIx by default: {fix}"


def launcher(
    default: LauncherName, spec: JobSpec, site: Site, scheduler: Scheduler
) -> tuple[LauncherName, list[str]]:
    """Return the launcher of the MPI that setup loads, unless the job or its site names a launcher; and notes
    on the choice.
    """
    there = loaded([*site.setup, *spec.setup, *site.setup_last])
    if there is None:
        return default, []
    if there.fits(default):
        note = there.without_pmix(default, [*site.launcher_args, *spec.launcher.args])
        return default, [note] if note else []
    better = there.launcher(scheduler.launchers)
    if chosen := spec.launcher.name:
        fix = f"set {better}, or drop it" if better else "load another MPI"
        return default, [f"{there}, whose ranks launcher.name: {chosen} does not connect: {fix}"]
    if better is None or "/" in site.mpiexec:
        fix = f"set launcher.name: {better}" if better else "load another MPI, or set launcher.name"
        return default, [f"{there}, and the site's launcher is {default}: {fix}"]
    return better, [f"{there}, so launcher.name is {better} instead of the site's {default}"]


def loaded(setup: Iterable[str]) -> Loaded | None:
    """Return the MPI that is loaded after `setup`, judging by the module commands."""
    there: list[Loaded] = []
    for line in setup:
        for module, gone in _changes(line):
            if gone:
                there = [one for one in there if module and _name(one.module) != _name(module)]
            elif any(_fits(module, one) for one in LAUNCHERS):
                there.append(Loaded(module, _shown(line)))
    return there[-1] if there else None


def _shown(line: str) -> str:
    return next(part for part in map(str.strip, line.splitlines()) if _COMMAND.search(part))


def _name(module: str) -> str:
    """Return the name of a module without the version; Fedora's modules have names such as
    mpi/openmpi-x86_64.
    """
    first, _, rest = module.lower().partition("/")
    return rest if first == "mpi" and rest else first


def _fits(module: str, launcher: LauncherName) -> bool:
    return _is_one_of(module, LAUNCHERS[launcher].mpi_modules)


def _is_one_of(module: str, modules: str) -> bool:
    return bool(modules and re.match(rf"(?:{modules})(?:[-_.@/\d]|$)", _name(module)))


def _changes(line: str) -> Iterator[tuple[str, bool]]:
    """Yield the modules that a shell line loads or unloads: each module's name, or "" for all, and whether it
    is unloaded.
    """
    for command, words in _COMMAND.findall(line):
        shown = [word.strip("\"'") for word in words.split()]
        flags = [word for word in shown if word.startswith("-")]
        names = [word for word in shown if not word.startswith("-")]
        verb = names[0] if names else ""
        if verb in _CLEARS:
            yield "", True
        elif verb in _UNLOADS:
            yield from ((name, True) for name in names[1:])
        elif verb in _EXCHANGES:
            yield from ((name, True) for name in names[1:-1])
            yield from ((name, False) for name in names[-1:])
        elif verb in _LOADS:
            yield from ((name, False) for name in names[1:])
        elif command == "ml":  # Lmod's short form: a name loads a module, and -name unloads it
            yield from ((flag.lstrip("-"), True) for flag in flags)
            yield from ((name, False) for name in names)
