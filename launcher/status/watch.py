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

from launcher.errors import CastoffError, StillRunning
from launcher.runs.directory import check_trusted
from launcher.runs.env_from import remove_secrets
from launcher.runs.records import write
from launcher.runs.run import Run
from launcher.runs.states import MemberStatus, RunStatus, code_of, joint_state, worst
from launcher.schedulers.command import PATIENCE
from launcher.schedulers.jobs import JobTold
from launcher.schedulers.local.control import is_abandoned, mark_of, marked, other_host
from launcher.schedulers.queue import NOT_ASKED, Answer
from launcher.schedulers.registry import is_own, queued_of
from launcher.status import local, queued
from launcher.status.settle import decide
from launcher.status.survey import LAST_WORD, REQUEUE_MEMORY, Scene

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
    return judge([Scene(run) for run in runs], asking)


def judge(scenes: list[Scene], asking: Asking | None = None) -> list[RunStatus]:
    """The statuses of runs whose directories have just been read; `asking` asks their schedulers.

    Raises:
        CastoffError: something in their directories cannot be read.
    """
    told = (asking or Asking()).told(scenes)
    marks = functools.cache(marked)
    found = [
        _assembled(one.run, one.members, told=one)
        if (one := told.get(scene.run.path))
        else _local_status(scene, marks)
        for scene in scenes
    ]
    for scene, now in zip(scenes, found, strict=True):
        if _needs_no_secrets(now):
            remove_secrets(scene.run, now.submitted)
    return found


_STAYS_ENDED = ("done", "failed", "out-of-memory")
"""Endings after which no scheduler starts a job again."""


def _needs_no_secrets(now: RunStatus) -> bool:
    """Whether nothing of a run will begin, unless it is submitted again."""
    ended = now.state == "ended"
    return ended and (now.final or all(member.ending in _STAYS_ENDED for member in now.members))


def looks(runs: list[Run], timeout: float | None = None) -> Iterator[list[RunStatus]]:
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
    for (now,) in looks([run], timeout):
        last = now
    return last


def check_over(found: Iterable[RunStatus], timeout: float | None) -> None:
    """See that nothing more will happen to runs that were waited for.

    Raises:
        StillRunning: something may, after `timeout` seconds.
    """
    if left := [one for one in found if not (one.over or one.never_begins)]:
        raise StillRunning("\n".join(f"{one.id} is still {one.state} after {timeout:g} s" for one in left))


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


def _local_status(scene: Scene, marks: Callable[[], Container[str]]) -> RunStatus:
    """The status of a run whose scheduler is castoff itself, or of which nothing but records is known."""
    if not scene.alive and any(not found[-1].settled for found in scene.attempts.values()):
        mark = mark_of(scene.run)
        alive = mark is not None and mark in marks()
        scene = Scene(scene.run, held=scene.held)  # it may have ended before that look
        scene.alive = alive
    elsewhere = None if scene.alive else other_host(scene.run)
    return _assembled(scene, local.judge(scene, elsewhere), elsewhere)


def _assembled(
    scene: Scene,
    members: list[MemberStatus],
    elsewhere: str | None = None,
    told: queued.Told | None = None,
) -> RunStatus:
    state = joint_state(members)
    over = state in ("ended", "unknown")
    submission, plan = scene.submission, scene.plan
    return RunStatus(
        id=scene.run.id,
        name=plan.name or scene.run.id,
        site=plan.site,
        scheduler=plan.scheduler,
        job=scene.job,
        directory=str(scene.run.path),
        state=state,
        ending=worst(member.ending for member in members) if over else None,
        code=code_of(members) if state == "ended" else None,
        reason=_reason(scene, members, elsewhere, told) if scene.is_there else "its directory is gone",
        stop_asked=scene.stop_asked,
        final=state == "ended" and _is_final(scene, members),
        submitted=submission.time if submission else None,
        walltime=plan.walltime,
        members=members,
        unsettled=told is not None and told.unsettled,
    )


def _is_final(scene: Scene, members: list[MemberStatus]) -> bool:
    """Whether an ended run will stay as it is: what its scheduler might start again will not."""
    if scene.submission is not None and is_own(scene.plan.scheduler):
        return not scene.alive
    last = [member.attempts[-1] for member in members if member.attempts]
    ended = max((attempt.ended or time.time() for attempt in last), default=0.0)
    submitted = scene.queued and scene.submission is not None
    may_go_on = not submitted and any(one.ending == "again" for one in last)
    return time.time() - ended > REQUEUE_MEMORY and not may_go_on


def _reason(
    scene: Scene, members: list[MemberStatus], elsewhere: str | None, told: queued.Told | None
) -> str | None:
    """Why it was never submitted, why it waits, why nobody knows how it ended, or how it can go on."""
    run, submission, state = scene.run, scene.submission, joint_state(members)
    refused = [send.error for send in scene.sends if send.error]
    if submission and (submission.error is not None or refused):
        return f"it could not be submitted: {submission.error or refused[0]}"
    if state == "ended":
        if worst(member.ending for member in members) != "again":
            return None
        return _CAN_GO_ON.format(run.id) if submission else _BY_HAND.format(scene.job)
    if told is not None:
        if submission and state != "running" and not scene.sends and not scene.attempts and not scene.alive:
            return _KILLED_EARLY.format(run.id)
        words = [one.reason for one in members if one.state == state != "running" and one.reason]
        return told.stuck or next(iter(words), None)
    if state == "running" and scene.alive and is_abandoned(run):
        return f"its scheduler is gone, but what it started lives: `castoff cancel {run.id}` ends it"
    if state != "unknown":
        return None
    if not submission:
        return "castoff did not submit it, so nothing tells whether its script still runs"
    if elsewhere:
        return f"its scheduler runs, or ran, on {elsewhere}: ask there"
    return _KILLED_EARLY.format(run.id) if not submission.job and not scene.attempts else _ALL_KILLED


_ALL_KILLED = (
    "its scheduler is gone and no ending was written: everything was killed at once, or the machine went "
    "down; castoff does not guess. Read the logs, then resubmit it"
)
_KILLED_EARLY = "it was killed while it was submitted, so nothing began; `castoff resubmit {}` sends it"
_CAN_GO_ON = "it stopped early and can go on: castoff resubmit {}"
_BY_HAND = (
    "it stopped early and can go on; castoff did not submit it, so only the scheduler of job {} knows "
    "whether it does"
)


class Asking:
    """Asks the schedulers of runs about them when that is due."""

    def __init__(self, patience: float | None = None) -> None:
        """`patience`: seconds for an answer (default: what a busy scheduler may take)."""
        self._patience = patience
        self._sides: dict[str, _Side] = {}

    def silence_on(self, run: Run) -> str | None:
        """Why its scheduler could not tell of a run the last time; None where it did, or was not asked."""
        return next(filter(None, (side.silence_on(run) for side in self._sides.values())), None)

    def told(self, scenes: list[Scene]) -> dict[Path, queued.Told]:
        """What is known of runs on Slurm or PBS, by directory, each with its scene as it is by now."""
        found: dict[Path, queued.Told] = {}
        for scheduler in sorted({scene.plan.scheduler for scene in scenes if scene.queued}):
            if scheduler not in self._sides:
                self._sides[scheduler] = _Side(scheduler, self._patience)
            own = [scene for scene in scenes if scene.queued and scene.plan.scheduler == scheduler]
            found |= self._sides[scheduler].told(own)
        return found


class _Side:
    """One scheduler, asked about all runs that are its own."""

    def __init__(self, scheduler: str, patience: float | None) -> None:
        self._queue = queued_of(scheduler).queue(patience=patience or PATIENCE)
        self._answer = NOT_ASKED
        self._elsewhere: dict[Path, str] = {}
        self._history: Mapping[str, list[JobTold]] | None = None
        self._records: dict[Path, frozenset[tuple[int, int, bool]]] = {}
        self._jobs: set[str] = set()
        self._asked: float | None = None
        self._changed = 0.0

    def silence_on(self, run: Run) -> str | None:
        """Why it could not tell of a run the last time; None where it did, or was not asked about it."""
        return self._elsewhere.get(run.path) or (self._answer.silence if run.path in self._records else None)

    def told(self, scenes: list[Scene]) -> dict[Path, queued.Told]:
        """What is known of its runs."""
        doubtful = [scene for scene in scenes if scene.needs_queue()]
        if doubtful and self._is_due(doubtful):
            self._ask(doubtful)
            asked = {run.run.path for run in doubtful}
            further = True
            while further:  # records are read after each answer: what has ended since may be over for it
                scenes = [self._again(scene) if scene.run.path in asked else scene for scene in scenes]
                further = self._ask_further([scene for scene in scenes if scene.run.path in asked])
        return self._judge(scenes)

    def _is_due(self, runs: list[Scene]) -> bool:
        new = any(run.run.path not in self._records or run.jobs - self._jobs for run in runs)
        if self._asked is None or new:
            return True  # its jobs may be newer than the answer
        changed = any(self._records[run.run.path] != run.state_of_records for run in runs)
        pause = _ASK if changed else min(_SLOWEST_ASK, max(_ASK, (self._asked - self._changed) / 4))
        return time.monotonic() - self._asked >= pause

    def _ask(self, runs: list[Scene]) -> None:
        told = [(run, self._queue.elsewhere(run.clusters)) for run in runs]
        self._elsewhere = {run.run.path: why for run, why in told if why}
        here = {job for run, why in told if not why for job in run.jobs}
        self._answer = self._queue.ask(here) if len(self._elsewhere) < len(runs) else NOT_ASKED
        self._jobs = {job for run in runs for job in run.jobs}
        self._history = None
        self._asked = time.monotonic()
        records = {run.run.path: run.state_of_records for run in runs}
        if records != self._records:
            self._records, self._changed = records, self._asked

    def _ask_further(self, runs: list[Scene]) -> bool:
        """Ask about jobs that have been submitted since, as by those that go on; whether there were any."""
        here = [run for run in runs if run.run.path not in self._elsewhere]
        further = {job for run in here for job in run.jobs} - self._jobs
        if not further or not self._queue.asks_by_id or self._answer.silence:
            return False
        self._jobs |= further
        self._answer = self._answer.joined(self._queue.ask(further))
        return True

    def _again(self, scene: Scene) -> Scene:
        """A run's records as they are after the answer, which may decide whether it was submitted."""
        try:
            if scene.unclear and not scene.held and scene.run.path not in self._elsewhere:
                decide(scene.run, self._queue, self._answer, scene.unclear)
            return Scene(scene.run, held=scene.held)
        except (CastoffError, OSError):
            return scene  # what cannot be written stays as unclear as it was; what was read still counts

    def _judge(self, runs: list[Scene]) -> dict[Path, queued.Told]:
        told = {run.run.path: self._told_of(run) for run in runs}
        doubtful = {job for one in told.values() for job in one.doubtful}
        if doubtful and self._asked is not None:
            self._history = self._queue.history(doubtful)
            if self._history is not None:
                told |= {path: self._told_of(one.run) for path, one in told.items() if one.doubtful}
        for path, one in told.items():
            # So that nobody asks again; where that cannot be, somebody will.
            with contextlib.suppress(OSError, CastoffError):
                for folder, last in one.learnt:
                    check_trusted(path)
                    folder.mkdir(mode=0o700, exist_ok=True)
                    write(folder / LAST_WORD, last)
        return told

    def _told_of(self, run: Scene) -> queued.Told:
        seen = {one[:2] for one in self._records.get(run.run.path, ())}
        if elsewhere := self._elsewhere.get(run.run.path):
            return queued.Told(run, self._queue, Answer({}, frozenset(), elsewhere), {}, seen)
        return queued.Told(run, self._queue, self._answer, self._history, seen)
