"""Reads the line of a script that starts the ranks: the launcher, its request, and the program. Pure.

Words are read as the shell would pass them, if that is known, or else as they are written.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath

from castoff.launcher.launchers.foreign.flux_run import read_flux
from castoff.launcher.launchers.foreign.line import Launch
from castoff.launcher.launchers.foreign.mpiexec import read_mpiexec
from castoff.launcher.launchers.foreign.names import MPI
from castoff.launcher.launchers.foreign.srun import read_srun

_READERS: dict[str, Callable[[list[str]], Launch | None]] = {
    "srun": read_srun,
    **dict.fromkeys(MPI, read_mpiexec),
    "flux": read_flux,
}


def read(words: list[str]) -> Launch | None:
    """Read a line that starts ranks; None: the line's first word is not a launcher."""
    program = PurePosixPath(words[0]).name if words else ""
    reader = _READERS.get(program)
    if reader is None:
        return None
    launch = reader(words)
    return launch and launch._replace(launcher=program)
