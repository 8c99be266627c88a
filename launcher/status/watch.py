"""The states of many runs: from their own records, from the lock of castoff's own scheduler, and of those on
others by one question to each for all, which is asked the less often the longer nothing changes.

An attempt without an ending of which no scheduler knows is `unknown`: it may have been killed with
everything around it, and castoff does not guess.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path

from launcher.errors import CastoffError
from launcher.runs.directory import check_trusted
from launcher.runs.env_from import remove_secrets
from launcher.runs.records import write
from launcher.runs.run import Run
from launcher.runs.states import MemberStatus, RunStatus, aggregate_ending, aggregate_state, code_of
from launcher.schedulers.base_queue import NOT_ASKED, Answer
from launcher.schedulers.command import PATIENCE
from launcher.schedulers.job_info import JobInfo
from launcher.schedulers.local.control import is_abandoned, mark_of, marked, other_host
from launcher.schedulers.registry import is_own, queued_of
from launcher.status import local, scheduler_view
from launcher.status.settle import decide
from launcher.status.survey import LAST_WORD, REQUEUE_MEMORY, RunRecords

AT_A_GLANCE = 5.0
"""Seconds for a scheduler's answer that a person waits for."""

_POLL = 0.2
_SLOWEST_POLL = 2.0
"""Seconds between two looks at a run: more of them the longer it takes, but never more than these."""

_ASK = 2.0
_SLOWEST_ASK = 30.0
"""Seconds between two questions to a scheduler: more of them the longer ago records have changed."""


def status(run: Run, asking: Asking | None = None) -> RunStatus:
    """The status of a run; a scheduler is asked only where its records leave something in doubt.

    Raises:
        CastoffError: something in its directory cannot be read.
    """
    return statuses([run], asking)[0]


def statuses(runs: Iterable[Run], asking: Asking | None = None) -> list[RunStatus]:
    """The statuses of runs, with one question to each scheduler for all of them.

    Who looks again and again with the same `asking` asks the less often, the longer nothing changes.

    Raises:
        CastoffError: something in their directories cannot be read.
    """
    return judge([RunRecords(run) for run in runs], asking)


def judge(runs: list[RunRecords], asking: Asking | None = None) -> list[RunStatus]:
    """The statuses of runs whose directories have just been read; `asking` asks their schedulers.

    Raises:
        CastoffError: something in their directories cannot be read.
    """
    views = (asking or Asking()).query(runs)
    marks = functools.cache(marked)
    found = [
        _assembled(one.records, one.members, view=one)
        if (one := views.get(records.run.path))
        else _local_status(records, marks)
        for records in runs
    ]
    for records, now in zip(runs, found, strict=True):
        if _needs_no_secrets(now):
            remove_secrets(records.run, now.submitted)
    return found


_STAYS_ENDED = ("done", "failed", "out-of-memory")
"""Endings after which no scheduler starts a job again."""


def _needs_no_secrets(now: RunStatus) -> bool:
    """Whether nothing of a run will begin, unless it is submitted again."""
    ended = now.state == "ended"
    return ended and (now.final or all(member.ending in _STAYS_ENDED for member in now.members))


def poll(runs: list[Run], timeout: float | None = None) -> Iterator[list[RunStatus]]:
    """The statuses of runs, looked at again and again until nothing more will happen to any of them.

    Or until `timeout` seconds have passed.
    """
    begun, asking = time.monotonic(), Asking()
    now = dict(enumerate(statuses(runs, asking)))
    yield [*now.values()]
    while left := [place for place, one in now.items() if not one.over and not one.never_begins]:
        waited = time.monotonic() - begun
        pause = min(_SLOWEST_POLL, max(_POLL, waited / 50))
        if timeout is not None:
            if waited >= timeout:
                return
            pause = min(pause, timeout - waited)
        time.sleep(pause)
        now.update(zip(left, statuses([runs[place] for place in left], asking), strict=True))
        yield [*now.values()]


def wait(run: Run, timeout: float | None = None) -> RunStatus:
    """The status of a run as soon as it is over or can never begin, or when `timeout` seconds have passed."""
    for (now,) in poll([run], timeout):
        last = now
    return last


def condition_holds(condition: str, run: Run, asking: Asking | None = None) -> bool | None:
    """Whether a dependency's condition holds of a run; False where it never will, None not yet."""
    if os.path.lexists(run.path):
        try:
            check_trusted(run.path)
        except CastoffError:
            return False
    now = status(run, asking)
    if condition == "after":
        return True if now.state in ("running", "ended") or now.over else None
    if not now.over:
        return None
    well = now.ending == "done"
    return condition == "afterany" or well == (condition == "afterok")


def _local_status(records: RunRecords, marks: Callable[[], Container[str]]) -> RunStatus:
    """The status of a run whose scheduler is castoff itself, or of which nothing but records is known."""
    if not records.alive and any(not found[-1].settled for found in records.attempts.values()):
        mark = mark_of(records.run)
        alive = mark is not None and mark in marks()
        records = RunRecords(records.run, held=records.held)  # it may have ended before that look
        records.alive = alive
    elsewhere = None if records.alive else other_host(records.run)
    return _assembled(records, local.judge(records, elsewhere), elsewhere)


def _assembled(
    records: RunRecords,
    members: list[MemberStatus],
    elsewhere: str | None = None,
    view: scheduler_view.SchedulerView | None = None,
) -> RunStatus:
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
        stop_asked=records.stop_asked,
        final=state == "ended" and _is_final(records, members),
        submitted=submission.time if submission else None,
        walltime=plan.walltime,
        members=members,
        unsettled=view is not None and view.unsettled,
    )


def _is_final(records: RunRecords, members: list[MemberStatus]) -> bool:
    """Whether an ended run will stay as it is: what its scheduler might start again will not."""
    if records.submission is not None and is_own(records.plan.scheduler):
        return not records.alive
    last = [member.attempts[-1] for member in members if member.attempts]
    ended = max((attempt.ended or time.time() for attempt in last), default=0.0)
    submitted = records.queued and records.submission is not None
    may_go_on = not submitted and any(one.ending == "resume" for one in last)
    return time.time() - ended > REQUEUE_MEMORY and not may_go_on


def _reason(
    records: RunRecords,
    members: list[MemberStatus],
    elsewhere: str | None,
    view: scheduler_view.SchedulerView | None,
) -> str | None:
    """Why it was never submitted, why it waits, why its ending is unknown, or how it can be resumed."""
    run, submission, state = records.run, records.submission, aggregate_state(members)
    refused = [send.error for send in records.sends if send.error]
    if submission and (submission.error is not None or refused):
        return f"it could not be submitted: {submission.error or refused[0]}"
    if state == "ended":
        if aggregate_ending(member.ending for member in members) != "resume":
            return None
        return _CAN_GO_ON.format(run.id) if submission else _BY_HAND.format(records.job)
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
        return f"its scheduler is gone, but what it started lives: `castoff cancel {run.id}` ends it"
    if state != "unknown":
        return None
    if not submission:
        return "castoff did not submit it, so it is not known whether its script is still running"
    if elsewhere:
        return f"its scheduler runs, or ran, on {elsewhere}: ask there"
    return _KILLED_EARLY.format(run.id) if not submission.job and not records.attempts else _ALL_KILLED


_ALL_KILLED = (
    "its scheduler is gone and no ending was recorded: everything was killed at once, or the machine went "
    "down; castoff does not guess. Read the logs, then resubmit it"
)
_KILLED_EARLY = "it was killed while it was submitted, so nothing began; `castoff resubmit {}` sends it"
_CAN_GO_ON = "it stopped early and can be resumed: castoff resubmit {}"
_BY_HAND = (
    "it stopped early and can be resumed; castoff did not submit it, so only the scheduler of job {} knows "
    "whether it does"
)


class Asking:
    """Asks the schedulers of runs about them when that is due."""

    def __init__(self, patience: float | None = None) -> None:
        """`patience`: seconds for an answer (default: what a busy scheduler may take)."""
        self._patience = patience
        self._sides: dict[str, _Side] = {}

    def silence_on(self, run: Run) -> str | None:
        """Why its scheduler could not report on a run the last time; None where it did, or was not asked."""
        return next(filter(None, (side.silence_on(run) for side in self._sides.values())), None)

    def query(self, runs: list[RunRecords]) -> dict[Path, scheduler_view.SchedulerView]:
        """What is known of runs on Slurm or PBS, by directory, each with its scene as it is by now."""
        found: dict[Path, scheduler_view.SchedulerView] = {}
        for scheduler in sorted({records.plan.scheduler for records in runs if records.queued}):
            if scheduler not in self._sides:
                self._sides[scheduler] = _Side(scheduler, self._patience)
            own = [records for records in runs if records.queued and records.plan.scheduler == scheduler]
            found |= self._sides[scheduler].query(own)
        return found


class _Side:
    """One scheduler, asked about all runs that are its own."""

    def __init__(self, scheduler: str, patience: float | None) -> None:
        self._queue = queued_of(scheduler).queue(patience=patience or PATIENCE)
        self._answer = NOT_ASKED
        self._elsewhere: dict[Path, str] = {}
        self._history: Mapping[str, list[JobInfo]] | None = None
        self._records: dict[Path, frozenset[tuple[int, int, bool]]] = {}
        self._jobs: set[str] = set()
        self._asked: float | None = None
        self._changed = 0.0

    def silence_on(self, run: Run) -> str | None:
        """Why it could not report on a run the last time; None where it did, or was not asked about it."""
        return self._elsewhere.get(run.path) or (self._answer.silence if run.path in self._records else None)

    def query(self, runs: list[RunRecords]) -> dict[Path, scheduler_view.SchedulerView]:
        """What is known of its runs."""
        doubtful = [records for records in runs if records.needs_queue()]
        if doubtful and self._is_due(doubtful):
            self._ask(doubtful)
            asked = {run.run.path for run in doubtful}
            further = True
            while further:  # records are read after each answer: what has ended since may be over for it
                runs = [self._again(records) if records.run.path in asked else records for records in runs]
                further = self._ask_further([records for records in runs if records.run.path in asked])
        return self._judge(runs)

    def _is_due(self, runs: list[RunRecords]) -> bool:
        new = any(run.run.path not in self._records or run.jobs - self._jobs for run in runs)
        if self._asked is None or new:
            return True  # its jobs may be newer than the answer
        changed = any(self._records[run.run.path] != run.state_of_records for run in runs)
        pause = _ASK if changed else min(_SLOWEST_ASK, max(_ASK, (self._asked - self._changed) / 4))
        return time.monotonic() - self._asked >= pause

    def _ask(self, runs: list[RunRecords]) -> None:
        places = [(run, self._queue.elsewhere(run.clusters)) for run in runs]
        self._elsewhere = {run.run.path: why for run, why in places if why}
        here = {job for run, why in places if not why for job in run.jobs}
        self._answer = self._queue.ask(here) if len(self._elsewhere) < len(runs) else NOT_ASKED
        self._jobs = {job for run in runs for job in run.jobs}
        self._history = None
        self._asked = time.monotonic()
        records = {run.run.path: run.state_of_records for run in runs}
        if records != self._records:
            self._records, self._changed = records, self._asked

    def _ask_further(self, runs: list[RunRecords]) -> bool:
        """Ask about jobs that have been submitted since, as by those that go on; whether there were any."""
        here = [run for run in runs if run.run.path not in self._elsewhere]
        further = {job for run in here for job in run.jobs} - self._jobs
        if not further or not self._queue.asks_by_id or self._answer.silence:
            return False
        self._jobs |= further
        self._answer = self._answer.joined(self._queue.ask(further))
        return True

    def _again(self, records: RunRecords) -> RunRecords:
        """A run's records as they are after the answer, which may decide whether it was submitted."""
        try:
            if records.unclear and not records.held and records.run.path not in self._elsewhere:
                decide(records.run, self._queue, self._answer, records.unclear)
            return RunRecords(records.run, held=records.held)
        except (CastoffError, OSError):
            return records  # what cannot be written stays as unclear as it was; what was read still counts

    def _judge(self, runs: list[RunRecords]) -> dict[Path, scheduler_view.SchedulerView]:
        views = {run.run.path: self._view_of(run) for run in runs}
        doubtful = {job for one in views.values() for job in one.doubtful}
        if doubtful and self._asked is not None:
            self._history = self._queue.history(doubtful)
            if self._history is not None:
                views |= {path: self._view_of(one.records) for path, one in views.items() if one.doubtful}
        for path, one in views.items():
            # So that nobody asks again; where that cannot be, somebody will.
            with contextlib.suppress(OSError, CastoffError):
                for folder, last in one.learnt:
                    check_trusted(path)
                    folder.mkdir(mode=0o700, exist_ok=True)
                    write(folder / LAST_WORD, last)
        return views

    def _view_of(self, records: RunRecords) -> scheduler_view.SchedulerView:
        seen = {one[:2] for one in self._records.get(records.run.path, ())}
        if elsewhere := self._elsewhere.get(records.run.path):
            return scheduler_view.SchedulerView(
                records, self._queue, Answer({}, frozenset(), elsewhere), {}, seen
            )
        return scheduler_view.SchedulerView(records, self._queue, self._answer, self._history, seen)
