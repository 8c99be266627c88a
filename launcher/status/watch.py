"""The states of many runs: from their own records, from the lock of castoff's own scheduler, and of those on
Slurm or PBS by one question for all.

An attempt without an ending of which no scheduler knows is `unknown`: it may have been killed with
everything around it, and castoff does not guess.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from launcher.errors import CastoffError
from launcher.runs.directory import check_trusted
from launcher.runs.run import Run
from launcher.runs.states import MemberStatus, RunStatus, code_of, joint_state, worst
from launcher.schedulers.local.abandoned import Marked
from launcher.schedulers.local.control import is_abandoned, other_host, started_by
from launcher.schedulers.registry import is_own
from launcher.status import local as local_states
from launcher.status.asking import Asking
from launcher.status.scenes import Scene, survey

if TYPE_CHECKING:
    from launcher.status.queued import Told

AT_A_GLANCE = 5.0
"""Seconds for a scheduler's answer that a person waits for."""

_POLL = 0.2
_SLOWEST_POLL = 2.0
"""Seconds between two looks at a run: more of them the longer it takes, but never more than these."""

_REQUEUE_MEMORY = 3600.0
"""Seconds after which no scheduler starts an ended job again by itself or when asked: Slurm has
forgotten it (MinJobAge, 300 s unless a site says otherwise), and PBS reruns none that has ended."""


def status(run: Run, asking: Asking | None = None) -> RunStatus:
    """The status of a run; a scheduler is asked only where its records leave something in doubt.

    Raises:
        CastoffError: something in its directory cannot be read.
    """
    return judge([survey(run)], asking)[0]


def statuses(runs: Iterable[Run]) -> list[RunStatus]:
    """The statuses of runs, with one question to each scheduler for all of them.

    Raises:
        CastoffError: something in their directories cannot be read.
    """
    return judge([survey(run) for run in runs])


def judge(scenes: list[Scene], asking: Asking | None = None) -> list[RunStatus]:
    """The statuses of runs whose directories have just been read; `asking` asks their schedulers.

    Raises:
        CastoffError: something in their directories cannot be read.
    """
    scenes, told = (asking or Asking()).told(scenes)
    marked = Marked()
    return [
        _status(scene, told[scene.run.path]) if scene.queued else _local_status(scene, marked)
        for scene in scenes
    ]


def by_records(scene: Scene) -> RunStatus:
    """A run as its own records tell of it: what they leave in doubt is unknown, for nobody was asked.

    Raises:
        CastoffError: something in its directory cannot be read.
    """
    if scene.queued is None:
        return _local_status(scene, Marked())
    from launcher.schedulers.queue import Answer
    from launcher.schedulers.registry import title_of
    from launcher.status import queued as queued_states

    known = queued_states.Known(
        title_of(scene.plan.scheduler),
        Answer({}, frozenset(), silence="it was not asked yet"),
        {},
        accounted=False,
        lag=0.0,
        seen=frozenset(),
        user="",
        now=time.time(),
    )
    return _status(scene, queued_states.judge(scene.queued, known))


class Looking:
    """Looks at runs again and again, and asks schedulers the less often, the longer nothing changes."""

    def __init__(self, runs: Iterable[Run]):
        self._runs = list(runs)
        self._asking = Asking()
        self._seen: list[RunStatus] = []

    @property
    def answered(self) -> bool:
        """Whether the schedulers, if they had to be asked, answered the last time."""
        return self._asking.answered

    def look(self) -> list[RunStatus]:
        """How the runs are now; a run that is over is still looked at.

        Raises:
            CastoffError: something in their directories cannot be read.
        """
        return self.look_at(self._runs)

    def look_at(self, runs: Iterable[Run]) -> list[RunStatus]:
        """The same of these runs.

        Raises:
            CastoffError: something in their directories cannot be read.
        """
        return judge([survey(run) for run in runs], self._asking)

    def look_at_rest(self) -> list[RunStatus]:
        """The same, but those that were over stay as they were."""
        left = [place for place, one in enumerate(self._seen) if not one.over]
        if not self._seen:
            self._seen = self.look()
        else:
            found = self.look_at(self._runs[place] for place in left)
            for place, one in zip(left, found, strict=True):
                self._seen[place] = one
        return list(self._seen)


def looks(runs: list[Run], timeout: float | None = None) -> Iterator[list[RunStatus]]:
    """The statuses of runs, looked at again and again until all are over or `timeout` seconds passed."""
    begun = time.monotonic()
    looking = Looking(runs)
    now = looking.look_at_rest()
    yield now
    while not all(one.over for one in now):
        waited = time.monotonic() - begun
        pause = min(_SLOWEST_POLL, max(_POLL, waited / 50))
        if timeout is not None:
            if waited >= timeout:
                return
            pause = min(pause, timeout - waited)
        time.sleep(pause)
        now = looking.look_at_rest()
        yield now


def wait(run: Run, timeout: float | None = None) -> RunStatus:
    """The status of a run as soon as it is over, or when `timeout` seconds have passed."""
    for (now,) in looks([run], timeout):
        last = now
    return last


def condition_holds(condition: str, run: Run, looking: Looking | None = None) -> bool | None:
    """Whether a dependency's condition holds of a run; False where it never will, None not yet.

    `looking` looks at this run alone; who asks again and again asks its scheduler less often by it.
    """
    if os.path.lexists(run.path):
        try:
            check_trusted(run.path)
        except CastoffError:
            return False
    (now,) = (looking or Looking([run])).look()
    if condition == "after":
        return True if now.state in ("running", "ended") or now.over else None
    if not now.over:
        return None
    well = now.ending == "done"
    return condition == "afterany" or well == (condition == "afterok")


def _local_status(scene: Scene, marked: Marked) -> RunStatus:
    """The status of a run whose scheduler is castoff itself, or of which nothing but records is known."""
    if not scene.alive and any(not found[-1].settled for found in scene.attempts.values()):
        alive = bool(marked.of(started_by(scene.run)))
        scene = survey(scene.run, held=scene.held)._replace(alive=alive)  # it may have ended before that look
    elsewhere = None if scene.alive else other_host(scene.run)
    members = local_states.judge(scene, elsewhere)
    state = joint_state(members)
    told = (found[0].job for found in scene.attempts.values())  # by the script
    job = scene.submission.job if scene.submission else next((job for job in told if job), None)
    return _assembled(
        scene,
        members,
        job=job,
        reason=_reason(scene, elsewhere, members, job) if scene.holds else "its directory is gone",
        final=state == "ended" and _is_final(scene, members),
    )


def _status(scene: Scene, told: Told) -> RunStatus:
    """The status of a run on Slurm or PBS."""
    assert scene.queued is not None
    members, job = told.members, scene.queued.job
    state = joint_state(members)
    return _assembled(
        scene,
        members,
        job=job,
        reason=_reason_queued(scene, told, state, job) if scene.holds else "its directory is gone",
        final=state == "ended" and _is_final(scene, members),
        unsettled=told.unsettled,
    )


def _assembled(
    scene: Scene,
    members: list[MemberStatus],
    *,
    job: str | None,
    reason: str | None,
    final: bool,
    unsettled: bool = False,
) -> RunStatus:
    state = joint_state(members)
    over = state in ("ended", "unknown")
    submission, plan = scene.submission, scene.plan
    return RunStatus(
        id=scene.run.id,
        name=plan.name or scene.run.id,
        site=plan.site,
        scheduler=plan.scheduler,
        job=job,
        directory=str(scene.run.path),
        state=state,
        ending=worst(member.ending for member in members) if over else None,
        code=code_of(members) if state == "ended" else None,
        reason=reason,
        stop_asked=scene.stop_asked,
        final=final,
        submitted=submission.time if submission else None,
        walltime=plan.walltime,
        members=members,
        unsettled=unsettled,
    )


def _is_final(scene: Scene, members: list[MemberStatus]) -> bool:
    """Whether an ended run will stay as it is: what its scheduler might start again will not."""
    if scene.submission is not None and is_own(scene.plan.scheduler):
        return not scene.alive
    last = [member.attempts[-1] for member in members if member.attempts]
    ended = max((attempt.ended or time.time() for attempt in last), default=0.0)
    submitted = scene.queued is not None and scene.submission is not None
    may_go_on = not submitted and any(one.ending == "again" for one in last)
    return time.time() - ended > _REQUEUE_MEMORY and not may_go_on


def _reason(scene: Scene, elsewhere: str | None, members: list[MemberStatus], job: str | None) -> str | None:
    """Why it was never submitted, why nobody knows how it ended, or how it can go on."""
    state = joint_state(members)
    run, submission = scene.run, scene.submission
    if submission and submission.error is not None:
        return f"it could not be submitted: {submission.error}"
    if state == "ended" and worst(member.ending for member in members) == "again":
        return _can_go_on(scene, job)
    if state == "running" and scene.alive and is_abandoned(run):
        return f"its scheduler is gone, but what it started lives: `castoff cancel {run.id}` ends it"
    if state != "unknown":
        return None
    if not submission:
        return "castoff did not submit it, so nothing tells whether its script still runs"
    if elsewhere:
        return f"its scheduler runs, or ran, on {elsewhere}: ask there"
    if not submission.job and not scene.attempts:
        return _KILLED_EARLY.format(run.id)
    return (
        "its scheduler is gone and no ending was written: everything was killed at once, or the "
        "machine went down; castoff does not guess. Read the logs, then resubmit it"
    )


_KILLED_EARLY = "it was killed while it was submitted, so nothing began; `castoff resubmit {}` sends it"


def _can_go_on(scene: Scene, job: str | None) -> str:
    if scene.submission:
        return f"it stopped early and can go on: castoff resubmit {scene.run.id}"
    return (
        f"it stopped early and can go on; castoff did not submit it, so only the scheduler of job {job} "
        "knows whether it does"
    )


def _reason_queued(scene: Scene, told: Told, state: str, job: str | None) -> str | None:
    submission = scene.submission
    refused = [send.error for send in (submission.sends if submission else None) or [] if send.error]
    if submission and (submission.error is not None or refused):
        return f"it could not be submitted: {submission.error or refused[0]}"
    if state == "ended" and worst(member.ending for member in told.members) == "again":
        return _can_go_on(scene, job)
    if state == "ended":
        return None
    if state == "running":
        return told.stuck
    if submission and not submission.sends and not scene.attempts and not scene.alive:
        return _KILLED_EARLY.format(scene.run.id)
    words = [member.reason for member in told.members if member.state == state and member.reason]
    return told.stuck or (words[0] if words else None)
