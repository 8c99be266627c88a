"""A run's local scheduler seen from outside: whether it lives, and how it is asked to end the run."""

from __future__ import annotations

import contextlib
import json
import os
import socket

from launcher.directories import check_trusted
from launcher.errors import CastoffError
from launcher.runs import LOCK, Run, is_locked, read_record, write_file

SETTLED = "settled"
"""Stands in an attempt's folder when its scheduler has looked at its ending and ended what it left.

Before, an ending is the script's word alone: one that was cancelled may call itself done.
"""

_WHO = "local.json"
_CANCEL = "cancel"
_MODULE = "launcher.local.scheduler"


def introduce(run: Run, submission: int) -> None:
    """Write down that this process is the run's scheduler, and which of its submissions it takes.

    Raises:
        OSError: it cannot be written.
    """
    record = {"pid": os.getpid(), "host": socket.gethostname(), "submission": submission}
    write_file(run.path / _WHO, json.dumps(record) + "\n")


def taken(run: Run) -> int | None:
    """The newest submission that a scheduler took, counted from 0; None if none ever did."""
    number = read_record(run.path / _WHO).get("submission")
    return number if isinstance(number, int) else None


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

    Its endings are recorded when all processes are gone. Where somebody killed the scheduler alone, its
    scripts are asked instead.

    Raises:
        CastoffError: the wish cannot be written down.
    """
    check_trusted(run.path)
    try:
        write_file(run.path / (_CANCEL if member is None else f"{_CANCEL}-{member}"), "")
    except OSError as error:
        raise CastoffError(f"{run.path}: cannot be written, so {run.id} goes on: {error.strerror}") from error
    if is_alive(run) and other_host(run) is None and taken(run) is not None and not _has_scheduler(run):
        _end_scripts(run, member)


def _has_scheduler(run: Run) -> bool:
    import psutil

    pid = read_record(run.path / _WHO).get("pid")
    try:
        return isinstance(pid, int) and _MODULE in psutil.Process(pid).cmdline()
    except psutil.Error:
        return False


def _end_scripts(run: Run, member: int | None) -> None:
    import psutil

    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # gone, or another user's
            told = process.environ()
            if process.cmdline()[-1:] != [str(run.script)] or told.get("CASTOFF_RUN_DIR") != str(run.path):
                continue
            if member is None or told.get("CASTOFF_LOCAL_INDEX") == str(member):
                process.terminate()


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
