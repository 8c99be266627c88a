"""The states of many runs: from their own records, from the lock of castoff's own scheduler, and of those on
Slurm by one question for all.

An attempt without an ending of which no scheduler knows is `unknown`: it may have been killed with
everything around it, and castoff does not guess.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from launcher import local_states
from launcher.directories import check_trusted
from launcher.errors import CastoffError
from launcher.local.control import is_alive, other_host, taken
from launcher.local_states import LocalRun
from launcher.records import Facts, Start, Submission, facts, read
from launcher.runs import STOP, Run, names_in, write_file
from launcher.status import MemberStatus, RunStatus, code_of, joint_state, worst

if TYPE_CHECKING:
    from launcher.queue import Answer, Queue
    from launcher.records import LastWord
    from launcher.schedulers.slurm_jobs import JobTold
    from launcher.slurm_runs import RecordsState, SlurmRun
    from launcher.slurm_states import Told

_POLL = 0.2
_SLOWEST_POLL = 2.0
"""Seconds between two looks at a run: more of them the longer it takes, but never more than these."""

_ASK = 2.0
_SLOWEST_ASK = 30.0
"""Seconds between two questions to Slurm: more of them each time that nothing has changed."""
_ASK_LESS = 1.5
"""How many times longer each wait is than the one before."""

_REQUEUE_MEMORY = 3600.0
"""Seconds after which no scheduler starts an ended job again by itself or when asked: Slurm has
forgotten it (MinJobAge, 300 s unless a site says otherwise), and PBS reruns none that has ended."""


class Scene(NamedTuple):
    """A run as its directory tells of it, before any scheduler is asked."""

    run: Run
    holds: bool
    """Whether its directory is there."""
    submission: Submission | None
    """None: castoff did not submit it."""
    plan: Facts
    alive: bool
    """Whether anything holds its lock."""
    stop_asked: bool
    attempts: dict[int, list[tuple[int, Path]]]
    """Of each member its attempts, with their folders."""
    slurm: SlurmRun | None
    """None: no Slurm knows of it."""
    held: bool
    """Whether its lock is the caller's."""


def survey(run: Run, *, held: bool = False) -> Scene:
    """Read a run's directory. `held`: its lock is the caller's, who sends nothing yet.

    Raises:
        CastoffError: something in it cannot be read.
    """
    # Before the records: what is written between the two looks then counts.
    alive = not held and is_alive(run)
    holds = names_in(run.path)
    submission = read(run.path / "submission.json", Submission)
    plan = facts(run)
    attempts: dict[int, list[tuple[int, Path]]] = {}
    for member, attempt, folder in run.attempts():
        attempts.setdefault(member, []).append((attempt, folder))
    scene = Scene(run, bool(holds), submission, plan, alive, STOP in holds, attempts, None, held)
    # A launch in an allocation is castoff's own affair, as what the local scheduler runs.
    return scene if plan.scheduler != "slurm" or taken(run) is not None else _on_slurm(scene)


def _on_slurm(scene: Scene) -> Scene:
    from launcher.slurm_runs import SlurmRun, read_attempt

    attempts = {
        member: [read_attempt(number, folder, names_in(folder)) for number, folder in found]
        for member, found in scene.attempts.items()
    }
    slurm = SlurmRun(scene.run, scene.submission, scene.plan, attempts, being_sent=scene.alive)
    return scene._replace(slurm=slurm)


def status(run: Run) -> RunStatus:
    """The status of a run; Slurm is asked only where its records leave something in doubt.

    Raises:
        CastoffError: something in its directory cannot be read.
    """
    return statuses([run])[0]


def statuses(runs: Iterable[Run]) -> list[RunStatus]:
    """The statuses of runs, with one question to Slurm for all of them.

    Raises:
        CastoffError: something in their directories cannot be read.
    """
    return judge([survey(run) for run in runs])


def judge(scenes: list[Scene]) -> list[RunStatus]:
    """The statuses of runs whose directories have just been read.

    Raises:
        CastoffError: something in their directories cannot be read.
    """
    return _Asking().judge(scenes)


class Looking:
    """Looks at runs again and again, and asks Slurm the less often, the longer nothing changes."""

    def __init__(self, runs: Iterable[Run]):
        self._runs = list(runs)
        self._asking = _Asking()
        self._seen: list[RunStatus] = []

    @property
    def slurm_answers(self) -> bool:
        """Whether Slurm, if it had to be asked, answered the last time."""
        return self._asking.silence is None

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
        return self._asking.judge([survey(run) for run in runs])

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

    `looking` looks at this run alone; who asks again and again asks Slurm less often by it.
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


class _Asking:
    """Judges runs, and asks Slurm about them when that is due."""

    def __init__(self) -> None:
        self._queue: Queue | None = None
        self._answer: Answer | None = None
        self._history: Mapping[str, list[JobTold]] | None = None
        self._seen: dict[Path, frozenset[tuple[int, int]]] = {}
        self._records: dict[Path, RecordsState] = {}
        self._states: dict[Path, object] = {}
        self._asked = 0.0
        self._interval = _ASK

    @property
    def silence(self) -> str | None:
        """Why Slurm did not answer the last time."""
        return self._answer.silence if self._answer else None

    def judge(self, scenes: list[Scene]) -> list[RunStatus]:
        """The statuses of runs whose directories have just been read."""
        on_slurm = [scene.slurm for scene in scenes if scene.slurm and scene.slurm.needs_slurm()]
        if on_slurm and self._is_due(on_slurm):
            self._ask(on_slurm)
            asked = {run.run.path for run in on_slurm}
            # Once more: what has ended since may be over for Slurm already.
            scenes = [self._again(scene) if scene.run.path in asked else scene for scene in scenes]
        told = self._judge_on_slurm([scene.slurm for scene in scenes if scene.slurm])
        return [
            _status(scene, told[scene.run.path]) if scene.slurm else _local_status(scene) for scene in scenes
        ]

    def _is_due(self, runs: list[SlurmRun]) -> bool:
        if self._answer is None:
            return True
        waited = time.monotonic() - self._asked
        known = [(self._records.get(run.run.path), run.state_of_records) for run in runs]
        if any(before is None or before.jobs != now.jobs for before, now in known):
            return True  # its jobs may be newer than the answer
        changed = any(before != now for before, now in known)
        return waited >= (_ASK if changed else self._interval)

    def _ask(self, runs: list[SlurmRun]) -> None:
        from launcher.queue import Queue

        self._queue = self._queue or Queue()
        self._answer, self._history = self._queue.ask(), None
        self._asked = time.monotonic()
        self._seen = {run.run.path: run.seen for run in runs}
        self._records = {run.run.path: run.state_of_records for run in runs}
        states = {run.run.path: [told for _, told in run.told_by(self._answer)] for run in runs}
        self._interval = _ASK if states != self._states else min(_ASK_LESS * self._interval, _SLOWEST_ASK)
        self._states = dict(states)

    def _again(self, scene: Scene) -> Scene:
        """A run's records as they are after Slurm's answer, which may decide whether it was submitted."""
        from launcher.settling import decide

        try:
            if scene.slurm and scene.slurm.unclear and self._queue and self._answer and not scene.held:
                decide(scene.run, self._queue, self._answer, {send.time for send in scene.slurm.unclear})
            return survey(scene.run, held=scene.held)
        except CastoffError:
            return scene  # what cannot be written stays as unclear as it was; what was read still counts

    def _judge_on_slurm(self, runs: list[SlurmRun]) -> dict[Path, Told]:
        if not runs:
            return {}
        from launcher.queue import NOT_ASKED
        from launcher.slurm_states import Known, judge

        def known(run: SlurmRun) -> Known:
            seen = self._seen.get(run.run.path, frozenset())
            accounted = self._history is not None
            user = self._queue.user_name if self._queue else ""
            return Known(self._answer or NOT_ASKED, self._history or {}, accounted, seen, user, time.time())

        told = {run.run.path: judge(run, known(run)) for run in runs}
        doubtful = {job for one in told.values() for job in one.doubtful}
        if doubtful and self._history is None and self._queue is not None:
            self._history = self._queue.history(doubtful)
            if self._history is not None:
                told.update(
                    {run.run.path: judge(run, known(run)) for run in runs if told[run.run.path].doubtful}
                )
        for run in runs:
            _keep(run.run, told[run.run.path].learnt)
        return told


def _keep(run: Run, learnt: list[tuple[Path, LastWord]]) -> None:
    """Write Slurm's last words down, so that nobody asks again; where that cannot be, somebody will."""
    from launcher.slurm_runs import LAST_WORD

    with contextlib.suppress(OSError, CastoffError):
        for folder, last in learnt:
            check_trusted(run.path)
            folder.mkdir(mode=0o700, exist_ok=True)
            write_file(folder / LAST_WORD, json.dumps(msgspec.to_builtins(last)) + "\n")


def _local_status(scene: Scene) -> RunStatus:
    """The status of a run whose scheduler is castoff itself, or of which nothing but records is known."""
    elsewhere = None if scene.alive else other_host(scene.run)
    run = LocalRun(scene.run, scene.submission, scene.plan, scene.alive, elsewhere, scene.stop_asked)
    members = local_states.judge(run, scene.attempts)
    state = joint_state(members)
    job = scene.submission.job if scene.submission else _job_of_script(scene.attempts)
    return _assembled(
        scene,
        members,
        job=job,
        reason=_reason(scene, elsewhere, members, job) if scene.holds else "its directory is gone",
        final=state == "ended" and _is_final(scene, members),
    )


def _status(scene: Scene, told: Told) -> RunStatus:
    """The status of a run on Slurm."""
    assert scene.slurm is not None
    members, job = told.members, scene.slurm.job
    state = joint_state(members)
    return _assembled(
        scene,
        members,
        job=job,
        reason=_reason_on_slurm(scene, told, state, job) if scene.holds else "its directory is gone",
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


def _job_of_script(attempts: Mapping[int, list[tuple[int, Path]]]) -> str | None:
    """The id that a script's scheduler gave it, as the script wrote it down."""
    for found in attempts.values():
        start = read(found[0][1] / "start.json", Start)
        if start and start.job:
            return start.job
    return None


def _is_final(scene: Scene, members: list[MemberStatus]) -> bool:
    """Whether an ended run will stay as it is: what its scheduler might start again will not."""
    if scene.submission is not None and scene.plan.scheduler == "local":
        return not scene.alive
    last = [member.attempts[-1] for member in members if member.attempts]
    ended = max((attempt.ended or time.time() for attempt in last), default=0.0)
    submitted = scene.slurm is not None and scene.submission is not None
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


def _reason_on_slurm(scene: Scene, told: Told, state: str, job: str | None) -> str | None:
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
