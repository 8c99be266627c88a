"""resubmit(run): start the next attempts of a run, in the same directory and with the same script."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from castoff.launcher import clock
from castoff.launcher.config.array_indices import index_list, members_range
from castoff.launcher.errors import CastoffError, report
from castoff.launcher.process import files
from castoff.launcher.runs.directory import check_folder
from castoff.launcher.runs.index import record_runs
from castoff.launcher.runs.notices import forget as forget_notices
from castoff.launcher.runs.owner import mark_of, other_host
from castoff.launcher.runs.records import Facts, Submission, ending_of, set_aside_hosts
from castoff.launcher.runs.run import LOCK, STOP, RunDirectory
from castoff.launcher.runs.script import head_of
from castoff.launcher.runs.secrets import SECRETS, secrets
from castoff.launcher.schedulers.base import QueuedScheduler
from castoff.launcher.schedulers.command import SchedulerUnreachable
from castoff.launcher.schedulers.local.control import forget_cancellation, marked
from castoff.launcher.schedulers.registry import queued
from castoff.launcher.schedulers.submit_request import SubmitCommand, SubmitRequest
from castoff.launcher.status.settle import settle
from castoff.launcher.status.survey import RunRecords
from castoff.launcher.status.watch import judge
from castoff.launcher.submission.dependencies import resolve
from castoff.launcher.submission.send import send, unrecorded

_PATIENCE = 20.0
"""Seconds to find out from the scheduler what became of an earlier submission."""

_POLL = 1.0


def resubmit(
    run: RunDirectory,
    *,
    members: Collection[int] = (),
    include_done: bool = False,
    all_hosts: bool = False,
    after: Mapping[str, list[str]] | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[int, int]:
    """Start the members of a run that are not done; return the number of the next attempt by member.

    `members`: start only those of these. `include_done`: also start members that are done. `all_hosts`: also
    use hosts that earlier jobs of the run have set aside; otherwise the scheduler excludes those hosts, if it
    can. `environ` is the submitter's environment (default: this process's). The script in the run directory
    is used, whatever castoff would render now. A dependency that was met once does not count again; `after`
    replaces it by the directories of runs, by condition.

    Raises:
        CastoffError: the run is still running, there is nothing to start, or this host cannot submit it.
    """
    environ = os.environ if environ is None else environ
    run = run.reopened()
    check_folder(run.path.parent)
    try:
        script = run.script.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise CastoffError(f"{run.script}: cannot be read: {error.strerror}") from error
    plan, before = run.facts(), run.submission()
    if before is None or plan.by_script:
        raise CastoffError(
            f"{run.id}: castoff did not submit it, or plan.json or submission.json is missing or damaged, so "
            "it is not known what may run already; `castoff submit` makes a new run"
        )
    scheduler = queued(plan.scheduler)
    if scheduler is not None:
        scheduler.check_reachable(environ)
    try:
        with run.locked(patience=0.5) as lock:
            _check_over(run, scheduler, environ)
            begin = _next_attempts(run, plan, members, include_done)
            # `_check_over` may have changed the record
            record = _renewed(run, run.submission() or before, begin, after)
            # Build the commands first: their errors must come before anything has changed.
            submit_commands: list[SubmitCommand] = []
            if scheduler is not None:
                if scheduler.excludes_hosts and not all_hosts:
                    record.excluded = [host.host for host in set_aside_hosts(run.path)]
                _check_none_left(run, scheduler, environ)
                if plan.sharing and _end_dispatchers(run):  # they may have begun further attempts
                    begin = _next_attempts(run, plan, members, include_done)
                    record.begin = begin
                configuration = scheduler.queue(environ).configuration()
                record.cluster = configuration.cluster or record.cluster
                submit_commands = _submit_commands(
                    run, script, plan, scheduler, record, configuration.largest_array, environ
                )
                _end_earlier_attempts(run, begin)
            _renew_secrets(run, plan.env_from, environ)
            forget_notices(run, begin)
            (run.path / STOP).unlink(missing_ok=True)
            forget_cancellation(run)
            record_runs(
                environ,
                lambda index: index.reopen(run),
                f"{run.id} starts nevertheless; `castoff list` may still show its earlier ending, "
                "`status` does not",
            )
            run.write_submission(record)
            try:
                send(run, record, scheduler, submit_commands, lock, environ, plan.submit_timeout)
            except OSError as error:
                raise unrecorded(run, record, error) from error
    except BlockingIOError:
        raise CastoffError(_still(run)) from None
    except OSError as error:
        raise CastoffError(f"{run.path}: cannot be written: {error.strerror}") from error
    return begin


def _check_over(run: RunDirectory, scheduler: QueuedScheduler | None, environ: Mapping[str, str]) -> None:
    """Check that no part of a run waits or runs. Processes that the local scheduler has started have the
    run's mark.
    """
    if scheduler is None:
        if (mark := mark_of(run)) and mark in marked():
            raise CastoffError(_still(run))
        return
    (run_status,) = judge([RunRecords(run, held=True)])
    if run_status.unsettled:
        settle(run, scheduler.queue(environ), patience=_PATIENCE)
        (run_status,) = judge([RunRecords(run, held=True)])
    if run_status.unsettled:
        raise CastoffError(f"{run.id}: {run_status.reason}; members that may be running are not restarted")
    if not run_status.over:
        raise CastoffError(_still(run))


def _check_none_left(run: RunDirectory, scheduler: QueuedScheduler, environ: Mapping[str, str]) -> None:
    """Check that the queue has no job of a run, not even one whose id is missing in the run's records."""
    queue = scheduler.queue(environ)
    records = RunRecords(run, held=True)

    left: list[str] = []

    def none_left() -> bool:
        """Whether the queue has no job with the run's script, whose path is unique."""
        left[:] = sorted({info.job for info in queue.unfinished(str(run.script))})
        return not left

    try:
        if records.queued and (elsewhere := queue.elsewhere(records.clusters)):
            raise SchedulerUnreachable(elsewhere)
        # A job that has just ended may be listed for a while.
        clock.until(none_left, _POLL, _PATIENCE)
    except SchedulerUnreachable as error:
        raise CastoffError(
            f"{run.id}: {scheduler.title} could not be asked whether a job of it is left: {error}; "
            "a run that may be active is not restarted"
        ) from None
    if left:
        raise CastoffError(
            f"{run.id}: {scheduler.title} still has a job of it: {', '.join(left)}; wait until it is over, "
            f"or end it: {shlex.join([*queue.cancel_command, *left])}"
        )


def _end_dispatchers(run: RunDirectory) -> bool:
    """Make sure that no job of the run starts members any more, though its host was lost; return whether one
    may have until now.
    """
    (run.path / LOCK).touch()
    now = (run.path / LOCK).stat().st_mtime
    left = max((_raise(folder, now) for folder in run.path.glob("attempts/.shared-*")), default=0.0)
    clock.sleep(left)
    return left > 0


def _end_earlier_attempts(run: RunDirectory, members: Collection[int]) -> None:
    """Make sure that no two attempts run at once: processes may outlive their job."""
    if (left := raise_fences(run, members)) > 0:
        report(f"ranks of earlier attempts may still run; within {left:.0f} s they end themselves")
        clock.sleep(left)


def _still(run: RunDirectory) -> str:
    return f"{run.id}: still running; `castoff stop` asks it to stop, `castoff cancel` ends it"


def _submit_commands(
    run: RunDirectory,
    script: str,
    plan: Facts,
    scheduler: QueuedScheduler,
    record: Submission,
    largest: int | None,
    environ: Mapping[str, str],
) -> list[SubmitCommand]:
    """Return the commands that start members again, in arrays no larger than the scheduler allows."""
    dependency = None  # the directive in the script applies
    if record.after:
        dependency = resolve(record.after, scheduler, environ).dependency
    elif has_begun(run):
        dependency = ""  # the dependency was met once, and the scheduler may have forgotten its jobs
    scheduler.check_run_dir(str(run.path))
    request = SubmitRequest.of(plan, head_of(script), str(run.path), dependency, record.begin)
    if request.sharing is not None:
        name = f"members-{len(record.earlier)}"
        files.replace(
            run.path / name, "".join(f"{member} {n}\n" for member, n in (record.begin or {}).items())
        )
        request = msgspec.structs.replace(request, sharers_file=name)
    request = msgspec.structs.replace(request, excluded=record.excluded)
    return request.with_members(scheduler.submit_commands(request, largest))


def _next_attempts(
    run: RunDirectory, plan: Facts, members: Collection[int], include_done: bool
) -> dict[int, int]:
    """Return the members to start, each with the number of the member's next attempt."""
    planned = plan.members
    last = {member: (attempt, folder) for member, attempt, folder in run.attempts()}
    if unknown := sorted({*members} - {*planned}):
        raise CastoffError(f"{run.id}: no member {unknown[0]}; members are {members_range(planned)}")
    begin = {}
    for member in sorted(members) or planned:
        attempt, folder = last.get(member, (-1, None))
        record = None if folder is None else ending_of(folder)
        if record is None and (host := other_host(run)):
            raise CastoffError(f"{run.id}: its scheduler runs, or ran, on {host}: resubmit it there")
        if record is None or record.ending != "done" or include_done:
            begin[member] = attempt + 1
    if not begin:
        several = len(members) > 1
        which = f"member{'s'[:several]} {index_list(sorted(members))}" if members else "it"
        what, them = f"{which} {'are' if several else 'is'}", "them" if several else "it"
        raise CastoffError(f"{run.id}: {what} done; --include-done restarts {them}")
    return begin


def _renew_secrets(run: RunDirectory, names: list[str], environ: Mapping[str, str]) -> None:
    """Read the variables of env_from again from the environment; a variable that is not set there keeps its
    value.
    """
    path = run.path / SECRETS
    if path.exists() and any(name not in environ for name in names):
        # The new time makes the file part of this submission, so that earlier endings do not delete it.
        os.utime(path)
    elif names:
        try:
            files.replace(path, secrets(names, environ))
        except CastoffError as error:
            raise CastoffError(f"{error}; castoff deletes these values when a run is over") from None


def _renewed(
    run: RunDirectory,
    before: Submission,
    begin: dict[int, int],
    after: Mapping[str, list[str]] | None,
) -> Submission:
    """Return the record of the new submission, with the previous submission in its history."""
    if after is None:
        after = {} if has_begun(run) else before.after  # the dependency was met once
    return msgspec.structs.replace(
        before,
        time=time.time(),
        job=None,
        error=None,
        after=dict(after),
        begin=begin,
        excluded=[],
        sends=[],
        earlier=[*before.earlier, msgspec.structs.replace(before, earlier=[])],
    )


def has_begun(run: RunDirectory) -> bool:
    """Whether an attempt of a run has begun."""
    return any((folder / "start.json").exists() for _, _, folder in run.attempts())


FENCE_TIME = 10.0
"""Seconds within which every process that checks for a fence ends: twice a script's `castoff_fence_every`."""


def raise_fences(run: RunDirectory, members: Collection[int]) -> float:
    """Ask all processes that may still run for these members to end; return how many seconds that may take.

    The caller holds the run's lock, and the scheduler has no job of the run.

    Raises:
        CastoffError: the folder of the attempts cannot be read.
        OSError: the lock file or a fence cannot be written.
    """
    (run.path / LOCK).touch()
    now = (run.path / LOCK).stat().st_mtime  # by the file system's clock, which also dates the fences
    folders = [folder for member, _, folder in run.attempts() if member in members]
    return max((_raise(folder, now) for folder in folders), default=0.0)


def _raise(attempt: Path, now: float) -> float:
    """Raise an attempt's fence; return how many seconds the attempt's processes may still run: 0 if it has no
    fence, or the fence shows that they ended.
    """
    with contextlib.suppress(FileNotFoundError):  # after other errors, processes may still run
        descriptor = os.open(attempt / "fence", os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "r+b", buffering=0) as fence:
            word = fence.read(8)
            if word == b"gone\n":
                return 0.0
            if word == b"live\n":
                fence.seek(0)
                fence.write(b"next\n")
            age = now - os.fstat(descriptor).st_mtime
        return max(FENCE_TIME - max(age, 0.0), 0.0)
    return 0.0
