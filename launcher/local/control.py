"""A run's local scheduler seen from outside: whether it lives, and how it is asked to end the run."""

from __future__ import annotations

import contextlib
import os
import signal
import socket

from launcher.errors import CastoffError
from launcher.runs import Run, is_locked, read_record, write_file

LOCK = "local.lock"
"""Held by the scheduler as long as it lives; the kernel lets go of it however it dies."""

SUBMITTING = "submitting.lock"
"""Held by `submit` until the scheduler holds its own lock, so that no look falls between."""

SETTLED = "settled"
"""Stands in an attempt's folder when its scheduler has looked at its ending and ended what it left.

Before, an ending is the script's word alone: one that was cancelled may call itself done.
"""

_WHO = "local.json"
_CANCEL = "cancel"


def introduce(run: Run) -> None:
    """Write down that this process is the run's scheduler."""
    write_file(run.path / _WHO, f'{{"pid": {os.getpid()}, "host": "{socket.gethostname()}"}}\n')


def is_alive(run: Run) -> bool:
    """Whether the run's scheduler is alive, or is just being started."""
    # In this order: the first is let go of only when the second is held.
    return is_locked(run.path / SUBMITTING) or is_locked(run.path / LOCK)


def other_host(run: Run) -> str | None:
    """The host where its scheduler runs, or ran, if that is not this one.

    Locks of another host cannot be seen on every file system that the two may share.
    """
    host = read_record(run.path / _WHO).get("host")
    return None if host in (None, socket.gethostname()) else str(host)


def cancel(run: Run) -> None:
    """Ask the scheduler to end the run; its endings are recorded when all processes are gone.

    Raises:
        CastoffError: the wish cannot be written down.
    """
    try:
        write_file(run.path / _CANCEL, "")
    except OSError as error:
        raise CastoffError(f"{run.path}: cannot be written, so {run.id} goes on: {error.strerror}") from error
    pid = read_record(run.path / _WHO).get("pid")
    if isinstance(pid, int) and other_host(run) is None and is_alive(run):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)  # sooner than its next look at the file


def cancel_asked(run: Run) -> bool:
    """Whether somebody asked to end the run."""
    return (run.path / _CANCEL).exists()
