"""A run's local scheduler seen from outside: whether it lives, and how it is asked to end the run."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import msgspec

from launcher.errors import CastoffError
from launcher.runs.directory import check_trusted
from launcher.runs.records import read, write, write_file
from launcher.runs.run import LOCK, Run, is_locked
from launcher.schedulers.local import abandoned
from launcher.schedulers.local.abandoned import SCHEDULER, Started

_WHO = "local.json"
_CANCEL = "cancel"


class _Who(msgspec.Struct):
    """A local.json: the scheduler that takes, or took, the newest submission."""

    pid: int | None = None
    host: str | None = None
    submission: int | None = None
    """Which one it took, counted from 0; None: none was ever taken."""
    mark: str | None = None
    since: float | None = None


def introduce(run: Run, submission: int, started: Started | None = None) -> None:
    """Write down that this process is the run's scheduler, and which of its submissions it takes.

    `started`: how all that it starts is known; None: a launch in the foreground, which has a guardian.

    Raises:
        OSError: it cannot be written.
    """
    known = started or (None, None)
    write(run.path / _WHO, _Who(os.getpid(), socket.gethostname(), submission, *known))


def _who(run: Run) -> _Who:
    return read(run.path / _WHO, _Who) or _Who()


def taken(run: Run) -> int | None:
    """The newest submission that a scheduler took, counted from 0; None if none ever did."""
    return _who(run).submission


def took_newest(run: Run) -> bool:
    """Whether the newest submission is castoff's own affair: the local scheduler's, or a launch's."""
    record = run.submission()
    return taken(run) == (len(record.earlier) if record else 0)


def is_alive(run: Run) -> bool:
    """Whether anything still sees to the run: its submission, its scheduler, or a script of it."""
    return is_locked(run.path / LOCK)


def other_host(run: Run) -> str | None:
    """The host where its scheduler runs, or ran, if that is not this one.

    Locks of another host cannot be seen on every file system that the two may share.
    """
    host = _who(run).host
    return None if host == socket.gethostname() else host


def cancel(run: Run, member: int | None = None) -> None:
    """Ask the scheduler to end the run, or one member of it alone.

    Its endings are recorded when all processes are gone. Where somebody killed the scheduler, this asks its
    scripts instead, and ends what they leave behind.

    Raises:
        CastoffError: the wish cannot be written down.
    """
    check_trusted(run.path)
    try:
        write_file(run.path / (_CANCEL if member is None else f"{_CANCEL}-{member}"), "")
    except OSError as error:
        raise CastoffError(f"{run.path}: cannot be written, so {run.id} goes on: {error.strerror}") from error
    if is_abandoned(run) and (started := started_by(run)):
        abandoned.end(run, started, member)


def started_by(run: Run) -> Started | None:
    """How what its newest scheduler has started here is known; None if it is not to be found here."""
    who = _who(run)
    if other_host(run) is not None or who.mark is None or who.since is None:
        return None
    return Started(who.mark, who.since)


def is_abandoned(run: Run) -> bool:
    """Whether a local scheduler took the newest submission on this host, and is gone."""
    return took_newest(run) and started_by(run) is not None and not _has_scheduler(run)


def _has_scheduler(run: Run) -> bool:
    """Whether the scheduler that took its newest submission lives."""
    pid = _who(run).pid
    if pid is None:
        return False
    with contextlib.suppress(OSError):
        return SCHEDULER.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return False


def cancel_asked(run: Run) -> bool:
    """Whether somebody asked to end the run."""
    return (run.path / _CANCEL).exists()


def cancelled_members(run: Run) -> set[int]:
    """The members that somebody asked to end alone."""
    try:
        names = os.listdir(run.path)  # noqa: PTH208 - asked for at each of the scheduler's steps
    except OSError:  # the scheduler has its own look at whether it is still there
        return set()
    asked = (name.removeprefix(f"{_CANCEL}-") for name in names if name.startswith(f"{_CANCEL}-"))
    return {int(member) for member in asked if member.isdecimal()}


def forget_cancellation(run: Run) -> None:
    """Let a run that was cancelled go on, once it is submitted again.

    Raises:
        OSError: it cannot be written.
    """
    (run.path / _CANCEL).unlink(missing_ok=True)
    for member in cancelled_members(run):
        (run.path / f"{_CANCEL}-{member}").unlink(missing_ok=True)
