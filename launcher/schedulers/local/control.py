"""A run's local scheduler seen from outside: whether it lives, and how it is asked to end the run."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path

from launcher.errors import CastoffError
from launcher.runs.directory import check_trusted
from launcher.runs.run import LOCK, Run, is_locked, read_record, write_file
from launcher.schedulers.local import abandoned
from launcher.schedulers.local.abandoned import SCHEDULER, Started

_WHO = "local.json"
_CANCEL = "cancel"


def introduce(run: Run, submission: int, started: Started | None = None) -> None:
    """Write down that this process is the run's scheduler, and which of its submissions it takes.

    `started`: how all that it starts is known; None: a launch in the foreground, which has a guardian.

    Raises:
        OSError: it cannot be written.
    """
    record = {"pid": os.getpid(), "host": socket.gethostname(), "submission": submission}
    known = started._asdict() if started else {}
    write_file(run.path / _WHO, json.dumps({**record, **known}) + "\n")


def taken(run: Run) -> int | None:
    """The newest submission that a scheduler took, counted from 0; None if none ever did."""
    number = read_record(run.path / _WHO).get("submission")
    return number if isinstance(number, int) else None


def took_newest(run: Run) -> bool:
    """Whether the newest submission is castoff's own affair: the local scheduler's, or a launch's."""
    return taken(run) == len(run.submission().get("earlier", []))


def is_alive(run: Run) -> bool:
    """Whether anything still sees to the run: its submission, its scheduler, or a script of it."""
    return is_locked(run.path / LOCK)


def other_host(run: Run) -> str | None:
    """The host where its scheduler runs, or ran, if that is not this one.

    Locks of another host cannot be seen on every file system that the two may share.
    """
    host = read_record(run.path / _WHO).get("host")
    return None if host in (None, socket.gethostname()) else str(host)


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
    record = read_record(run.path / _WHO)
    mark, since = record.get("mark"), record.get("since")
    if other_host(run) is None and isinstance(mark, str) and isinstance(since, float):
        return Started(mark, since)
    return None


def is_abandoned(run: Run) -> bool:
    """Whether a local scheduler took the newest submission on this host, and is gone."""
    return took_newest(run) and started_by(run) is not None and not _has_scheduler(run)


def _has_scheduler(run: Run) -> bool:
    """Whether the scheduler that took its newest submission lives."""
    pid = read_record(run.path / _WHO).get("pid")
    if not isinstance(pid, int):
        return False
    with contextlib.suppress(OSError):
        return SCHEDULER.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    import psutil

    try:
        return SCHEDULER in psutil.Process(pid).cmdline()
    except psutil.Error:
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
