"""Stacks on request: with CASTOFF_STACK_DIR set, a rank that receives QUIT writes its threads' stacks.

faulthandler does so in the signal's handler itself, so it works inside a collective that never ends, too.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import IO

_file: IO[str] | None = None
"""Where this process writes them; open for as long as it lives."""


def write_stacks_on_request(rank: int, environ: Mapping[str, str] | None = None) -> None:
    """From here on QUIT has this process write them to rank-00000.txt there, and run on."""
    global _file
    folder = (os.environ if environ is None else environ).get("CASTOFF_STACK_DIR")
    if not folder or _file is not None:
        return
    try:
        _file = Path(folder, f"rank-{rank:05d}.txt").open("w", encoding="utf-8")  # noqa: SIM115
    except OSError:  # nobody can read them there, and training does not need them
        return
    faulthandler.register(signal.SIGQUIT, file=_file, all_threads=True)
    os.register_at_fork(after_in_child=_leave_to_the_parent)


def _leave_to_the_parent() -> None:
    """In a forked child, as a loader's worker: a QUIT to the whole process group is not for it."""
    global _file
    if _file is None:
        return
    faulthandler.unregister(signal.SIGQUIT)
    signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    _file.close()
    _file = None
