"""Detects ranks that use MPI, which castoff's own launcher does not support: each rank is then an MPI world
of size 1.

Such a program computes the same results in every rank, and ends without an error. The kernel shows which
libraries a process has loaded, and an mpiexec sets variables in the processes that it starts.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from castoff.launcher.launchers.local.processes import children, program_of

FIRST_LOOK = 0.5
"""Seconds from the ranks' start until their processes are first inspected; each further pause is twice as
long.
"""

_LIBRARY = re.compile(r"/(libmpi(?:ch)?(?:_\w+)?\.so[.\d]*)$", re.MULTILINE)
_TORCH = "/libtorch"
_MPI4PY = "/mpi4py/"
_OF_MPIEXEC = (b"PMI_RANK=", b"PMIX_RANK=", b"OMPI_COMM_WORLD_RANK=")
# growth of the time between two inspections on output, so that a flood of output causes only a few
_SPARSER = 1.5


class MpiWorlds:
    """Inspects the processes of several ranks until one process is known to use MPI.

    Processes are also inspected when a rank writes something, and when the first rank exits, so that short
    programs are detected, too.
    """

    def __init__(self, world_size: int, ranks: Mapping[int, int], now: float):
        """`ranks`: this host's ranks, and the process of each."""
        self._world_size = world_size
        self._ranks = ranks
        self._began = now
        self._heard = now
        self._wait = FIRST_LOOK
        self.due: float | None = now + self._wait
        """When to inspect the processes next; None: never again."""

    def look(self, now: float) -> str | None:
        """Return the message for the user, once; None: there is none."""
        if self.due is not None and self.due <= now:
            self._wait *= 2
            self.due = now + self._wait
        return next(filter(None, map(self._look_at, self._ranks)), None)

    def hear(self, rank: int, now: float) -> str | None:
        """Inspect a rank that has written something, less often each time; return the message for the
        user.
        """
        if now - self._began < _SPARSER * (self._heard - self._began):
            return None
        self._heard = now
        return self._look_at(rank)

    def _look_at(self, rank: int) -> str | None:
        if self.due is None or (library := mpi_of(self._ranks[rank])) is None:
            return None
        self.due = None
        return (
            f"rank {rank} has loaded MPI ({library}), but castoff's own launcher does not start MPI: each "
            f"of the {self._world_size} ranks is alone, in an MPI world of size 1. To connect them, have its "
            f"mpiexec start them: --set launcher.name={_launcher_of(library)}. If the program uses only RANK "
            "and WORLD_SIZE, ignore this"
        )


def mpi_of(rank: int) -> str | None:
    """Return the MPI library that a process of a rank has loaded without an mpiexec, if any."""
    return next(filter(None, map(_loaded, _below(program_of(rank) or rank))), None)


def _launcher_of(library: str) -> str:
    """Return the launcher for an MPI library: Open MPI numbers its libraries from 20 on, others 12."""
    number = re.search(r"libmpi(?:_\w+)?\.so\.(\d+)", library)
    return "openmpi" if number and int(number[1]) >= 20 else "hydra"


def _loaded(pid: int) -> str | None:
    with contextlib.suppress(OSError):  # the process has ended, or is another user's
        maps = Path(f"/proc/{pid}/maps").read_text(errors="replace")
        library = _LIBRARY.search(maps)
        # torch and the libraries that it loads may be linked to MPI without using it.
        if library is None or (_TORCH in maps and _MPI4PY not in maps):
            return None
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        return None if any(variable.startswith(_OF_MPIEXEC) for variable in variables) else library[1]
    return None


def _below(pid: int) -> Iterator[int]:
    yield pid
    for child in children(pid):
        yield from _below(child)
