"""The process that owns a run that castoff itself executes: a local scheduler, or a launch.

`local.json` says which it is and where, and it holds the run's lock as long as it lives.
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
    """A local.json: the scheduler that takes, or took, the newest submission."""

    pid: int | None = None
    host: str | None = None
    submission: int | None = None
    """Which one it took, counted from 0; None: none was ever taken."""
    mark: str | None = None


def record_owner(run: RunDirectory, submission: int, mark: str | None = None) -> None:
    """Record that this process is the run's scheduler, and which of its submissions it takes.

    `mark`: what all that it starts has; None: a launch in the foreground, which has an orphan reaper.

    Raises:
        OSError: it cannot be written.
    """
    run.write(_OWNER, _Owner(os.getpid(), socket.gethostname(), submission, mark))


def _owner(run: RunDirectory) -> _Owner:
    return read(run.path / _OWNER, _Owner) or _Owner()


def taken_submission(run: RunDirectory) -> int | None:
    """The newest submission that a scheduler took, counted from 0; None if none ever did."""
    return _owner(run).submission


def owns_latest_submission(run: RunDirectory) -> bool:
    """Whether the newest submission is castoff's own affair: the local scheduler's, or a launch's."""
    record = run.submission()
    return taken_submission(run) == (len(record.earlier) if record else 0)


def is_alive(run: RunDirectory) -> bool:
    """Whether anything still sees to the run: its submission, its scheduler, or a script of it."""
    return is_locked(run.path / LOCK)


def other_host(run: RunDirectory) -> str | None:
    """The host where its scheduler runs, or ran, if that is not this one.

    Locks of another host cannot be seen on every file system that the two may share.
    """
    host = _owner(run).host
    return None if host == socket.gethostname() else host


def mark_of(run: RunDirectory) -> str | None:
    """The mark of all that its newest scheduler has started; None if that is not to be found here."""
    return _owner(run).mark if other_host(run) is None else None


def pid_of(run: RunDirectory) -> int | None:
    """The process's id, on its host; None if none ever was."""
    return _owner(run).pid
