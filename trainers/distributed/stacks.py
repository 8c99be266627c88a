"""Writes the stacks of a rank's threads when it receives QUIT, if CASTOFF_STACK_DIR is set.

faulthandler writes in the signal handler itself, so this also works inside a collective that never ends.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import IO

_file: IO[str] | None = None
"""The open file for this process's stacks."""


def write_stacks_on_request(rank: int, environ: Mapping[str, str] | None = None) -> None:
    """On QUIT, write this process's stacks to rank-00000.txt in CASTOFF_STACK_DIR, and continue."""
    global _file
    folder = (os.environ if environ is None else environ).get("CASTOFF_STACK_DIR")
    if not folder or _file is not None:
        return
    try:
        _file = Path(folder, f"rank-{rank:05d}.txt").open("w", encoding="utf-8")  # noqa: SIM115
    except OSError:  # training does not need the stacks
        return
    faulthandler.register(signal.SIGQUIT, file=_file, all_threads=True)
    os.register_at_fork(after_in_child=_leave_to_the_parent)


def _leave_to_the_parent() -> None:
    """Ignore QUIT in a forked child, such as a loader's worker: a QUIT to the process group is meant for the
    rank.
    """
    global _file
    if _file is None:
        return
    faulthandler.unregister(signal.SIGQUIT)
    signal.signal(signal.SIGQUIT, signal.SIG_IGN)
    _file.close()
    _file = None
