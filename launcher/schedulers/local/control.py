"""A run's local scheduler seen from outside: how it is started, and how it is asked to end the run.

What it has started outlives it where somebody kills it. All of that has the scheduler's mark, a word that
nothing else has, in its environment; that is how it is found then, and ended.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from castoff.launcher.errors import CastoffError
from castoff.launcher.process import files
from castoff.launcher.process.own_program import own_program
from castoff.launcher.runs.owner import mark_of, owns_latest_submission, pid_of
from castoff.launcher.runs.records import Ending, ending_of, write
from castoff.launcher.runs.run import SETTLED, RunDirectory

if TYPE_CHECKING:
    import psutil

MARK = "CASTOFF_MARK"
"""The variable by which all that a scheduler has started is known to be its own."""

INDEX = "CASTOFF_LOCAL_INDEX"
"""The variable that says of which member it is."""

KILL_AFTER = 10.0
"""Seconds between TERM and KILL at the walltime or a cancellation, as PBS has it."""

_PROGRAM = "castoff.launcher.cli.local_scheduler"
_CANCEL = "cancel"


def submit_command(run_dir: str) -> list[str]:
    """The command that runs a job on this machine; it detaches itself and prints the job's id."""
    return own_program(_PROGRAM, run_dir)


def parse_submit(answer: str) -> str | None:
    """The id that it prints, as `local-4711`; None if there is none."""
    first = answer.strip().partition("\n")[0]
    return first if first.startswith("local-") else None


def marked() -> dict[str, list[psutil.Process]]:
    """Every living process on this host that has a scheduler's mark, except this one, by its mark."""
    import psutil

    found: dict[str, list[psutil.Process]] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # gone, or another user's
            mark = process.environ().get(MARK)
            if mark and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                found.setdefault(mark, []).append(process)
    return found


def is_abandoned(run: RunDirectory) -> bool:
    """Whether a local scheduler took the newest submission on this host, and is gone."""
    if mark_of(run) is None or not owns_latest_submission(run):
        return False
    try:
        words = Path(f"/proc/{pid_of(run)}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return True
    return _PROGRAM.encode() not in words


def cancel(run: RunDirectory, member: int | None = None) -> None:
    """Ask the scheduler to end the run, or one member of it alone.

    Its endings are recorded when all processes are gone. Where somebody killed the scheduler, this ends what
    it has started.

    Raises:
        CastoffError: the wish cannot be written down.
    """
    try:
        files.replace(run.reopened().path / (_CANCEL if member is None else f"{_CANCEL}-{member}"), "")
    except OSError as error:
        raise CastoffError(
            f"{run.path}: cannot be written; {run.id} is still active: {error.strerror}"
        ) from error
    mark = mark_of(run)
    if mark is not None and is_abandoned(run):
        _end_abandoned(run, mark, member)


def _end_abandoned(run: RunDirectory, mark: str, member: int | None) -> None:
    """End what lives of a run, or of one of its members; then what has no ending was cancelled."""
    import psutil

    from castoff.launcher.launchers.local.processes import end_all

    def left() -> list[psutil.Process]:
        found = []
        for process in marked().get(mark, []):
            with contextlib.suppress(psutil.Error):  # gone
                if member is None or process.environ().get(INDEX) == str(member):
                    found.append(process)
        return found

    newest = {number: folder for number, _, folder in run.attempts() if member in (None, number)}
    active = {number for number, folder in newest.items() if ending_of(folder) is None}
    if not left() or not end_all(left, KILL_AFTER):
        return
    reason = "its scheduler was killed before; what it left running was ended on request"
    record = Ending("cancelled", 143, int(time.time()), reason)
    for number, folder in newest.items():
        with contextlib.suppress(OSError, CastoffError):  # then nobody knows it
            own = ending_of(folder)
            # All processes are signalled at once: a rank may die before its script receives the request.
            if own is None or (own.ending == "failed" and number in active):
                write(folder / "ending.json", record)
            (folder / SETTLED).touch(mode=0o600)


def cancel_requested(run: RunDirectory) -> bool:
    """Whether somebody asked to end the run."""
    return (run.path / _CANCEL).exists()


def cancelled_members(run: RunDirectory) -> set[int]:
    """The members that somebody asked to end alone."""
    asked = (path.name.removeprefix(f"{_CANCEL}-") for path in run.path.glob(f"{_CANCEL}-*"))
    return {int(member) for member in asked if member.isdecimal()}


def forget_cancellation(run: RunDirectory) -> None:
    """Let a run that was cancelled start, once it is resubmitted.

    Raises:
        OSError: it cannot be written.
    """
    for wish in (run.path / _CANCEL, *run.path.glob(f"{_CANCEL}-*")):
        wish.unlink(missing_ok=True)
