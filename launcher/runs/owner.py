"""The process that owns a run which castoff itself executes: a local scheduler, or `castoff launch`.

`local.json` records its id and host, and it holds the run's lock while it lives.
"""

from __future__ import annotations

import os
import socket

import msgspec

from castoff.launcher.process.locks import is_locked
from castoff.launcher.runs.records import read
from castoff.launcher.runs.run import LOCK, RunDirectory

_OWNER = "local.json"


class _Owner(msgspec.Struct):
    """local.json: the scheduler that took the newest submission."""

    pid: int | None = None
    host: str | None = None
    submission: int | None = None
    """The number of the submission that the scheduler took, from 0; None: no submission."""
    mark: str | None = None


def record_owner(run: RunDirectory, submission: int, mark: str | None = None) -> None:
    """Record this process as the run's scheduler, with the number of the submission that it takes.

    `mark`: the text by which all processes that this process starts are found; None: a launch in the
    foreground, which has an orphan reaper.

    Raises:
        OSError: the record cannot be written.
    """
    run.write(_OWNER, _Owner(os.getpid(), socket.gethostname(), submission, mark))


def _owner(run: RunDirectory) -> _Owner:
    return read(run.path / _OWNER, _Owner) or _Owner()


def taken_submission(run: RunDirectory) -> int | None:
    """The number of the newest submission that a scheduler took, from 0; None if none ever did."""
    return _owner(run).submission


def owns_latest_submission(run: RunDirectory) -> bool:
    """Whether castoff itself executes the newest submission, by a local scheduler or a launch."""
    record = run.submission()
    return taken_submission(run) == (len(record.earlier) if record else 0)


def is_alive(run: RunDirectory) -> bool:
    """Whether some process still works on the run: a submission, a scheduler, or one of its scripts."""
    return is_locked(run.path / LOCK)


def other_host(run: RunDirectory) -> str | None:
    """The host of the run's scheduler, if it is not this one.

    On some shared file systems, this host does not see that host's locks.
    """
    host = _owner(run).host
    return None if host == socket.gethostname() else host


def mark_of(run: RunDirectory) -> str | None:
    """The mark of all processes of the run's newest scheduler; None if it is on another host."""
    return _owner(run).mark if other_host(run) is None else None


def pid_of(run: RunDirectory) -> int | None:
    """The id of the owning process on its host; None if no process ever owned the run."""
    return _owner(run).pid
