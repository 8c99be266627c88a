"""Controls a run's local scheduler from other processes: starts the scheduler, and asks it to end the run.

If the local scheduler is killed, the processes that it has started live on. Their environment contains the
scheduler's mark, a unique word, by which castoff finds and ends them.
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
"""The variable that marks every process that a local scheduler has started."""

INDEX = "CASTOFF_LOCAL_INDEX"
"""The variable with the number of the member that a process belongs to."""

KILL_AFTER = 10.0
"""Seconds between TERM and KILL at the walltime or a cancellation, as PBS does."""

_PROGRAM = "castoff.launcher.cli.local_scheduler"
_CANCEL = "cancel"


def submit_command(run_dir: str) -> list[str]:
    """Return the command that runs a job on this machine; the command prints the job's id and detaches
    itself.
    """
    return own_program(_PROGRAM, run_dir)


def parse_submit(answer: str) -> str | None:
    """Read the job id that the submit command prints, such as `local-4711`; None: there is no id."""
    first = answer.strip().partition("\n")[0]
    return first if first.startswith("local-") else None


def marked() -> dict[str, list[psutil.Process]]:
    """Return this host's living processes that have a local scheduler's mark, grouped by mark, without this
    process.
    """
    import psutil

    processes: dict[str, list[psutil.Process]] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):  # the process is gone, or another user's
            mark = process.environ().get(MARK)
            if mark and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                processes.setdefault(mark, []).append(process)
    return processes


def is_abandoned(run: RunDirectory) -> bool:
    """Whether a local scheduler on this host took the newest submission but no longer exists."""
    if mark_of(run) is None or not owns_latest_submission(run):
        return False
    try:
        words = Path(f"/proc/{pid_of(run)}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return True
    return _PROGRAM.encode() not in words


def cancel(run: RunDirectory, member: int | None = None) -> None:
    """Ask the local scheduler to end the run, or only one member.

    The endings are recorded when all processes are gone. If the scheduler was killed, `cancel` itself ends
    the processes that the scheduler has started.

    Raises:
        CastoffError: the request cannot be written.
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
    """End the processes of a run, or of one member, and record attempts without an ending as cancelled."""
    import psutil

    from castoff.launcher.launchers.local.processes import end_all

    def left() -> list[psutil.Process]:
        alive = []
        for process in marked().get(mark, []):
            with contextlib.suppress(psutil.Error):  # gone
                if member is None or process.environ().get(INDEX) == str(member):
                    alive.append(process)
        return alive

    newest = {number: folder for number, _, folder in run.attempts() if member in (None, number)}
    active = {number for number, folder in newest.items() if ending_of(folder) is None}
    if not left() or not end_all(left, KILL_AFTER):
        return
    reason = "its scheduler was killed before; what it left running was ended on request"
    record = Ending("cancelled", 143, int(time.time()), reason)
    for number, folder in newest.items():
        with contextlib.suppress(OSError, CastoffError):  # the ending then stays unknown
            recorded = ending_of(folder)
            # All processes are signalled at once: a rank may die before its script receives the request.
            if recorded is None or (recorded.ending == "failed" and number in active):
                write(folder / "ending.json", record)
            (folder / SETTLED).touch(mode=0o600)


def cancel_requested(run: RunDirectory) -> bool:
    """Whether somebody asked to end the run."""
    return (run.path / _CANCEL).exists()


def cancelled_members(run: RunDirectory) -> set[int]:
    """Return the members for which somebody asked to end only them."""
    members = (path.name.removeprefix(f"{_CANCEL}-") for path in run.path.glob(f"{_CANCEL}-*"))
    return {int(member) for member in members if member.isdecimal()}


def forget_cancellation(run: RunDirectory) -> None:
    """Delete requests to cancel a run, so that the run can start when it is resubmitted.

    Raises:
        OSError: a request cannot be deleted.
    """
    for request in (run.path / _CANCEL, *run.path.glob(f"{_CANCEL}-*")):
        request.unlink(missing_ok=True)
