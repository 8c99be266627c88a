"""The line that starts a script's ranks: which launcher, what it asks for, and the program behind it. Pure.

Words are as the shell would hand them over where that is known, and as they are written where it is not.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath

from castoff.launcher.launchers.foreign.flux_run import read_flux
from castoff.launcher.launchers.foreign.line import Launch
from castoff.launcher.launchers.foreign.mpiexec import read_mpiexec
from castoff.launcher.launchers.foreign.srun import read_srun

_READERS: dict[str, Callable[[list[str]], Launch | None]] = {
    "srun": read_srun,
    **dict.fromkeys(("mpiexec", "mpirun", "mpiexec.hydra", "orterun", "mpirun_rsh"), read_mpiexec),
    "flux": read_flux,
}

NAMES = frozenset(_READERS) - {"flux"}
"""What starts ranks by its name alone, whatever stands behind it."""


def read(words: list[str]) -> Launch | None:
    """What such a line asks for; None: its first word is no launcher."""
    program = PurePosixPath(words[0]).name if words else ""
    reader = _READERS.get(program)
    if reader is None:
        return None
    launch = reader(words)
    return launch and launch._replace(launcher=program)
