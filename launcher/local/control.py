"""A run's local scheduler seen from outside: whether it lives, and how it is asked to end the run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal

from launcher.runs import Run, read_record, write_file

LOCK = "local.lock"
"""Held by the scheduler as long as it lives; the kernel lets go of it however it dies."""

_CANCEL = "cancel"


def is_alive(run: Run) -> bool:
    """Whether the run's scheduler is alive."""
    try:
        with (run.path / LOCK).open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def cancel(run: Run) -> None:
    """Ask the scheduler to end the run; its endings are recorded when all processes are gone."""
    write_file(run.path / _CANCEL, "")
    pid = read_record(run.path / "local.json").get("pid")
    if isinstance(pid, int) and is_alive(run):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def cancel_asked(run: Run) -> bool:
    """Whether somebody asked to end the run."""
    return (run.path / _CANCEL).exists()
