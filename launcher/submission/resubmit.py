"""resubmit(run): the next attempts of a run, in the same directory and with the script that is there."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Collection, Mapping

from launcher.errors import CastoffError
from launcher.runs.directory import Sealed, check_folder, opened
from launcher.runs.index import write_down
from launcher.runs.records import Earlier, Ending, Facts, Submission, read, write_file
from launcher.runs.run import LOCK, STOP, Run, locked
from launcher.runs.script import head_of
from launcher.schedulers.base import QueuedScheduler
from launcher.schedulers.command import Silent
from launcher.schedulers.local.abandoned import living
from launcher.schedulers.local.control import forget_cancellation, other_host, started_by
from launcher.schedulers.orders import Order, Sending
from launcher.schedulers.registry import queued, queued_of
from launcher.status.settle import settle
from launcher.status.survey import Scene
from launcher.status.watch import judge
from launcher.submission.dependencies import resolve
from launcher.submission.send import NotSent, send
from launcher.submission.submit import secrets

_PATIENCE = 20.0
"""Seconds in which the scheduler is asked what became of what was sent before."""

_POLL = 1.0

_NOT_REOPENED = (
    "{} starts all the same; `castoff list` may go on telling how it ended before, `status` does not"
)


def resubmit(
    run: Run,
    *,
    members: Collection[int] = (),
    done_too: bool = False,
    environ: Mapping[str, str] | None = None,
) -> dict[int, int]:
    """Start the members of a run that are not done once more, and say with which attempt each begins.

    `members`: these alone. `done_too`: also those that are done. `environ` is the submitter's
    environment (default: this process's). The script is the one in the directory, whatever castoff
    would render now; what the run waited for once is not waited for again.

    Raises:
        CastoffError: it still runs, there is nothing to start, or it cannot be submitted from here.
    """
    environ = os.environ if environ is None else environ
    with opened(run.path) as directory:
        check_folder(run.path.parent)
        try:
            script = run.script.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError as error:
            raise CastoffError(f"{run.script}: cannot be read: {error.strerror}") from error
        seal = Sealed(run.path, directory, script.encode(errors="surrogateescape"))
        plan = run.facts()
        scheduler = queued(plan.scheduler)
        _check_records(run, plan)
        if scheduler is not None:
            scheduler.check_reachable(environ)
        try:
            with locked(run.path / LOCK, patience=0.5) as lock:
                _check_over(run, scheduler, environ)
                begin = _next_attempts(run, plan, members, done_too)
                record = _renewed(run, plan.scheduler, begin)
                sendings = None  # all that can be wrong with them is said before anything has changed
                if scheduler is not None:
                    _check_none_left(run, scheduler, environ)
                    here = scheduler.configuration(environ)
                    record.cluster = here.cluster or record.cluster
                    sendings = _sendings(run, script, plan, record, here.largest_array, environ)
                _renew_secrets(run, plan.env_from, environ)
                (run.path / STOP).unlink(missing_ok=True)
                forget_cancellation(run)
                write_down(environ, lambda index: index.reopen(run), _NOT_REOPENED.format(run.id))
                run.write_submission(record)
                try:
                    send(run, seal, record, sendings, lock, environ)
                except NotSent as error:
                    record.error = error.said
                    run.write_submission(record)
                    raise
        except BlockingIOError:
            raise CastoffError(_still(run)) from None
        except OSError as error:
            raise CastoffError(f"{run.path}: cannot be written: {error.strerror}") from error
        return begin


def _check_records(run: Run, plan: Facts) -> None:
    """Make sure that they tell how it is started, and what was sent already.

    Raises:
        CastoffError: they do not.
    """
    local = queued(plan.scheduler) is None
    alone = not local and not (run.path / "submission.json").exists()  # its script was submitted by hand
    if (run.submission() is None and not alone) or (local and plan.by_script):
        raise CastoffError(
            f"{run.id}: plan.json or submission.json is missing or damaged, so castoff does not know how "
            "to start it, nor what may run already; `castoff submit` makes a new run"
        )


def _check_over(run: Run, scheduler: QueuedScheduler | None, environ: Mapping[str, str]) -> None:
    """Make sure that nothing of a run waits or runs. What the local one has
    started holds its lock, or has its mark.

    Raises:
        CastoffError: it does, or nobody can tell now.
    """
    if scheduler is None:
        if (started := started_by(run)) and started.mark in living():
            raise CastoffError(_still(run))
        return
    (now,) = judge([Scene(run, held=True)])
    if now.unsettled:
        settle(run, patience=_PATIENCE, held=True, environ=environ)
        (now,) = judge([Scene(run, held=True)])
    if now.unsettled:
        raise CastoffError(f"{run.id}: {now.reason}; what may run already is not started again")
    if not now.over:
        raise CastoffError(_still(run))


def _check_none_left(run: Run, scheduler: QueuedScheduler, environ: Mapping[str, str]) -> None:
    """Make sure that the queue has no job of a run, whatever it has said of the ids in its records.

    Raises:
        CastoffError: it has, or does not answer.
    """
    queue = scheduler.queue(environ)
    queued = Scene(run, held=True).queued
    # The ids of a script that stood alone, which lay elsewhere.
    alone = queued.jobs if run.submission() is None and queued else set()

    def living() -> list[str]:
        """By its script's path, which no other has."""
        found = (one for one in queue.unfinished() if one.runs(str(run.script)) or one.job in alone)
        return sorted({one.job for one in found})

    give_up = time.monotonic() + _PATIENCE
    try:
        if queued and (elsewhere := queue.elsewhere(queued.clusters)):
            raise Silent(elsewhere)
        # A job that has just ended is still being cleared away.
        while (left := living()) and time.monotonic() < give_up:
            time.sleep(_POLL)
    except Silent as why:
        raise CastoffError(
            f"{run.id}: {scheduler.title} could not be asked whether a job of it is left: {why}; what may "
            "run already is not started again"
        ) from None
    if left:
        raise CastoffError(
            f"{run.id}: {scheduler.title} still has a job of it: {', '.join(left)}; wait until it is over, "
            f"or end it: {shlex.join(scheduler.cancel_command(left))}"
        )


def _still(run: Run) -> str:
    return f"{run.id}: still running; `castoff stop` asks it to stop, `castoff cancel` ends it"


def _sendings(
    run: Run, script: str, plan: Facts, record: Submission, largest: int | None, environ: Mapping[str, str]
) -> list[Sending]:
    """The commands that start members again, in arrays of at most so many."""
    scheduler, head = queued_of(record.scheduler), head_of(script)
    dependency = None  # what its script's own directive says
    if record.after:
        _, dependency = resolve(record.after, record.scheduler, environ)
    elif _has_begun(run) and scheduler.forgets_dependency(head):
        dependency = ""  # it has held once, and those jobs may be forgotten
    if not plan.by_script:
        scheduler.check_run_dir(str(run.path))
    return scheduler.sendings(Order.of(plan, script, str(run.path), dependency, record.begin), largest)


def _next_attempts(run: Run, plan: Facts, members: Collection[int], done_too: bool) -> dict[int, int]:
    """The members to start, and the attempt that each begins with.

    Raises:
        CastoffError: there is none, or one of `members` does not exist, is done, or may still run.
    """
    count = plan.array_count or 1
    last = {member: (attempt, folder) for member, attempt, folder in run.attempts()}
    if unknown := sorted(set(members) - set(range(count))):
        raise CastoffError(f"{run.id}: there is no member {unknown[0]}; there are 0 to {count - 1}")
    begin = {}
    for member in sorted(members) or range(count):
        attempt, folder = last.get(member, (-1, None))
        record = None if folder is None else read(folder / "ending.json", Ending)
        if record is None and (host := other_host(run)):
            raise CastoffError(f"{run.id}: its scheduler runs, or ran, on {host}: resubmit it there")
        if record is None or record.ending != "done" or done_too:
            begin[member] = attempt + 1
        elif members:
            raise CastoffError(f"{run.id}: member {member} is done; with --done-too it starts again")
    if not begin:
        raise CastoffError(f"{run.id}: it is done; with --done-too it starts again")
    return begin


def _renew_secrets(run: Run, names: list[str], environ: Mapping[str, str]) -> None:
    """Take the variables of env_from from the environment; where one is not set, the old ones stay."""
    path = run.path / "secrets.sh"
    if names and not (path.exists() and any(name not in environ for name in names)):
        write_file(path, secrets(names, environ))


def _renewed(run: Run, scheduler: str, begin: dict[int, int]) -> Submission:
    """The record of a new submission; the one before becomes history."""
    # A script that stands alone was submitted where it made the directory.
    before = run.submission() or Submission(directory=str(run.path.parent))
    last = Earlier(before.time, before.job, before.error, before.sends)
    return Submission(
        scheduler=scheduler,
        directory=before.directory,
        time=time.time(),
        after={} if _has_begun(run) else before.after,  # what it waited for has held once
        node_hours=before.node_hours,
        cluster=before.cluster,
        begin=begin,
        earlier=[*before.earlier, last],
    )


def _has_begun(run: Run) -> bool:
    return any((folder / "start.json").exists() for _, _, folder in run.attempts())
