"""The status of a whole run: its state, ending and reason, from the states of its members."""

from __future__ import annotations

import time
from pathlib import Path

from castoff.launcher.runs.records import Submission
from castoff.launcher.runs.states import (
    MemberStatus,
    RunStatus,
    aggregate_ending,
    aggregate_state,
    code_of,
)
from castoff.launcher.schedulers.local.control import is_abandoned
from castoff.launcher.schedulers.registry import is_own
from castoff.launcher.status import scheduler_view
from castoff.launcher.status.attempt import REQUEUE_MEMORY
from castoff.launcher.status.script_output import failure_reason
from castoff.launcher.status.survey import RunRecords


def assembled(
    records: RunRecords,
    members: list[MemberStatus],
    elsewhere: str | None = None,
    view: scheduler_view.SchedulerView | None = None,
) -> RunStatus:
    """Return the status of a run. `elsewhere`: another host, on which alone one can see whether castoff's own
    scheduler is alive. `view`: what another scheduler reports of the run.
    """
    state = aggregate_state(members)
    over = state in ("ended", "unknown")
    submission, plan = records.submission, records.plan
    return RunStatus(
        id=records.run.id,
        name=plan.name or records.run.id,
        site=plan.site,
        scheduler=plan.scheduler,
        job=records.job,
        directory=str(records.run.path),
        state=state,
        ending=aggregate_ending(member.ending for member in members) if over else None,
        code=code_of(members) if state == "ended" else None,
        reason=_reason(records, members, elsewhere, view) if records.is_there else "its directory is gone",
        stop_requested=records.stop_requested,
        final=state == "ended" and _is_final(records, members),
        submitted=submission.time if submission else None,
        walltime=plan.walltime,
        members=members,
        set_aside=records.set_aside,
        unsettled=view is not None and view.unsettled,
    )


def _is_final(records: RunRecords, members: list[MemberStatus]) -> bool:
    """Whether the status of an ended run is final: the scheduler cannot start the run again."""
    if records.submission is not None and is_own(records.plan.scheduler):
        return not records.alive
    last = [member.attempts[-1] for member in members if member.attempts]
    ended = max((attempt.ended or time.time() for attempt in last), default=0.0)
    submitted = records.queued and records.submission is not None
    may_resume = not submitted and any(one.ending == "resume" for one in last)
    return time.time() - ended > REQUEUE_MEMORY and not may_resume


def _reason(
    records: RunRecords,
    members: list[MemberStatus],
    elsewhere: str | None,
    view: scheduler_view.SchedulerView | None,
) -> str | None:
    """Return why a run was not submitted, waits, failed or is unknown, or how it can be resumed."""
    run, submission, state = records.run, records.submission, aggregate_state(members)
    refused = [send.error for send in records.sends if send.error]
    if submission and (submission.error is not None or refused):
        return f"it could not be submitted: {submission.error or refused[0]}"
    if state == "ended":
        ending = aggregate_ending(member.ending for member in members)
        if ending != "resume":
            return failure_reason(run, members, ending)
        return _CAN_RESUME.format(run.id) if submission else _BY_HAND.format(records.job)
    if view is not None:
        if (
            submission
            and state != "running"
            and not records.sends
            and not records.attempts
            and not records.alive
        ):
            return _KILLED_EARLY.format(run.id)
        words = [one.reason for one in members if one.state == state != "running" and one.reason]
        return view.stuck or next(iter(words), None)
    if state == "running" and records.alive and is_abandoned(run):
        return f"its scheduler is gone, but processes of the run live: `castoff cancel {run.id}` ends them"
    if state == "pending" and not records.attempts:
        return _awaited(submission)
    if state != "unknown":
        return None
    if not submission:
        return "castoff did not submit it, so it is not known whether its script is still running"
    if elsewhere:
        return f"its scheduler runs, or ran, on {elsewhere}: ask there"
    return _KILLED_EARLY.format(run.id) if not submission.job and not records.attempts else _ALL_KILLED


def _awaited(submission: Submission | None) -> str | None:
    """Return a message with the runs that a run of castoff's own scheduler waits for; None: it waits for
    none.
    """
    after = submission.after.items() if submission else ()
    others = [f"{condition} of {Path(path).name}" for condition, paths in after for path in paths]
    return f"it waits for {', '.join(others)}" if others else None


_ALL_KILLED = (
    "its scheduler is gone and no ending was recorded: everything was killed at once, or the machine went "
    "down; castoff does not guess. Read the logs, then resubmit it"
)
_KILLED_EARLY = "castoff was killed during the submission, so nothing began; `castoff resubmit {}` submits it"
_CAN_RESUME = "it stopped early and can be resumed: castoff resubmit {}"
_BY_HAND = (
    "it stopped early and can be resumed; castoff did not submit it, so only the scheduler of job {} knows "
    "whether it does"
)


_STAYS_ENDED = ("done", "failed", "out-of-memory")
"""Endings after which no scheduler starts a job again."""


def needs_no_secrets(now: RunStatus) -> bool:
    """Whether no job of a run will start unless the run is submitted again, so that its secrets can be
    deleted.
    """
    ended = now.state == "ended"
    return ended and (now.final or all(member.ending in _STAYS_ENDED for member in now.members))
