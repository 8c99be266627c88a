"""Ends single members of a run, and leaves the others as they are."""

from __future__ import annotations

import time
from collections.abc import Collection

from castoff.launcher import clock
from castoff.launcher.config.array_indices import index_list, members_range
from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.owner import owns_latest_submission
from castoff.launcher.runs.records import Ending, write
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import RunStatus
from castoff.launcher.schedulers.job_info import member_job_id
from castoff.launcher.schedulers.local.control import cancel
from castoff.launcher.schedulers.registry import title_of
from castoff.launcher.status.survey import RunRecords
from castoff.launcher.status.watch import status
from castoff.launcher.submission.cancel import cancel_jobs

_POLL = 0.5
_PATIENCE = 60.0
"""Seconds within which a member should have ended: it gets TERM, and KILL later."""


def end_members(run: RunDirectory, members: Collection[int]) -> RunStatus:
    """End these members, and return the run's status afterwards.

    Raises:
        CastoffError: the run has no such member, or a member has not ended.
    """
    records = RunRecords(run)
    if unknown := sorted({*members} - {*records.plan.members}):
        raise CastoffError(
            f"{run.id}: no member {unknown[0]}; members are {members_range(records.plan.members)}"
        )
    left = _active(status(run), members)
    if not left:
        return status(run)
    if owns_latest_submission(run) or records.plan.sharing:
        for member in left:
            ask_to_end(run, member, records)
    else:
        _cancel_jobs(records, left)
    now = status(run)

    def have_ended() -> bool:
        nonlocal now
        now = status(run)
        return not _active(now, left)

    if not clock.until(have_ended, _POLL, _PATIENCE):
        still = index_list(sorted(_active(now, left)))
        raise CastoffError(f"{run.id}: members {still} have not ended after {_PATIENCE:g} s")
    return now


def _active(now: RunStatus, members: Collection[int]) -> set[int]:
    return {one.member for one in now.members if one.member in members and one.state != "ended"}


def ask_to_end(run: RunDirectory, member: int, records: RunRecords) -> None:
    """Ask what runs a member to end it: castoff's own scheduler, or the job that the member shares.

    Raises:
        CastoffError: the request cannot be written.
    """
    cancel(run, member)
    if records.plan.sharing:
        _end_unbegun(run, member, records)


def _end_unbegun(run: RunDirectory, member: int, records: RunRecords) -> None:
    """Record that a member does not begin any more, unless its script has begun meanwhile."""
    attempts = records.attempts.get(member, [])
    if attempts and attempts[-1].end is None:
        return
    number = attempts[-1].number + 1 if attempts else records.begin.get(member, 0)
    folder = run.path / "attempts" / f"{member}.{number}"
    ending = Ending("cancelled", 143, int(time.time()), "cancelled before it began")
    try:
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700)
        write(folder / "ending.json", ending)
    except FileExistsError:  # its script has begun, and the dispatcher ends it
        return
    except OSError as error:
        raise CastoffError(f"{folder}: cannot be written: {error.strerror}") from error


def _cancel_jobs(records: RunRecords, members: Collection[int]) -> None:
    """Ask the scheduler to end the jobs of members that have jobs of their own."""
    run = records.run
    if records.scheduler is None:
        raise CastoffError(f"{run.id}: castoff did not submit it, so castoff cannot end its members")
    jobs = set()
    for member in members:
        own, send = records.own(member), records.place(member)
        key = records.key(member, own[-1].job if own else send.job if send else None)
        if key is None or key[1] is None:
            raise CastoffError(f"{run.id}: member {member} has no job of its own; `castoff cancel {run.id}`")
        jobs.add(member_job_id(*key))
    if refused := cancel_jobs(records.scheduler.queue(), {run: jobs}):
        words = "; ".join(dict.fromkeys(refused.values()))
        raise CastoffError(f"{run.id}: {title_of(records.plan.scheduler)}: {words}")
