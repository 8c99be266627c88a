"""The states of runs, from their own records and, for local runs, from their scheduler's lock.

An attempt without an ending whose scheduler is gone is `unknown`: it may have been killed with
everything around it, and castoff does not guess.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from launcher.directories import check_trusted
from launcher.errors import CastoffError
from launcher.local.control import SETTLED, is_alive, other_host
from launcher.records import Code, Ending, Failure, Number, Seconds, Start, Submission, facts, read
from launcher.runs import STOP, Run

_POLL = 0.2
_SLOWEST_POLL = 2.0
"""Seconds between two looks at a run: more of them the longer it takes, but never more than these."""

ENDINGS = (
    "unknown",
    "failed",
    "out-of-memory",
    "node-failure",
    "walltime",
    "preempted",
    "cancelled",
    "again",
    "done",
)
"""The worst first."""

_REQUEUE = "requeue"
"""A file in an attempt's folder: its local scheduler is to begin another one."""

_REQUEUE_MEMORY = 3600.0
"""Seconds after which no scheduler starts an ended job again by itself or when asked: Slurm has
forgotten it (MinJobAge, 300 s unless a site says otherwise), and PBS reruns none that has ended."""


class AttemptStatus(msgspec.Struct, frozen=True):
    """One start of a member."""

    attempt: int
    state: str
    """running, ended or unknown."""
    ending: str | None
    code: int | None
    reason: str | None
    """Why it ended so, where its scheduler knows more than the ending says."""
    host: str | None
    started: float | None
    """Seconds since the epoch; None if it never began."""
    ended: float | None
    failure: Failure | None
    logs: str
    """The folder of the ranks' logs."""


class MemberStatus(msgspec.Struct, frozen=True):
    """One member of a run and its attempts."""

    member: int
    state: str
    """pending, running, ended or unknown."""
    ending: str | None
    attempts: list[AttemptStatus]


class RunStatus(msgspec.Struct, frozen=True):
    """What became of a run so far."""

    id: str
    name: str
    site: str
    scheduler: str
    job: str | None
    """The scheduler's id."""
    directory: str
    state: str
    """pending, running, ended or unknown."""
    ending: str | None
    """Derived from the members': the worst of them; None while it goes on."""
    code: int | None
    """The first code that is not 0, else 0; None while it goes on or is unknown."""
    reason: str | None
    """Why it is unknown, why it was never submitted, or how it can go on."""
    stop_asked: bool
    """Whether somebody asked it to stop early."""
    final: bool
    """Whether nothing but a resubmission can change this."""
    submitted: float | None
    """Seconds since the epoch; None where castoff did not submit it."""
    walltime: int | None
    """Seconds that each attempt may take; None: no bound, or not known."""
    members: list[MemberStatus]

    @property
    def over(self) -> bool:
        """Whether nothing more will happen, as far as is known."""
        return self.state in ("ended", "unknown")

    @property
    def counts(self) -> dict[str, int]:
        """How many members have each ending, or each state where they have none yet."""
        return dict(Counter(member.ending or member.state for member in self.members))


class RunSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run in one line of a list."""

    name: str
    site: str
    scheduler: str
    job: str | None
    state: str
    ending: str | None
    code: Code | None
    reason: str | None
    members: Number
    counts: dict[str, Number]
    """As `RunStatus.counts`."""
    attempts: Number
    """Of all members together."""
    submitted: Seconds | None
    started: Seconds | None
    ended: Seconds | None
    """Seconds since the epoch, as far as known."""
    stop_asked: bool = False


class _Scene(NamedTuple):
    """What the members of a run have in common."""

    run: Run
    submission: Submission | None
    """None: castoff did not submit it."""
    alive: bool
    """Whether its scheduler lives."""
    elsewhere: str | None
    """The host to ask whether it lives, if not this one."""
    stop_asked: bool


def status(run: Run) -> RunStatus:
    """The status of a run, read from its directory.

    Raises:
        CastoffError: something in it cannot be read.
    """
    # Before the records: what is written between the two looks then counts.
    alive = is_alive(run)
    holds = _names(run.path)
    submission = read(run.path / "submission.json", Submission)
    stop_asked = STOP in holds
    scene = _Scene(run, submission, alive, None if alive else other_host(run), stop_asked)
    plan = facts(run)
    attempts: dict[int, list[tuple[int, Path]]] = {}
    for member, attempt, folder in run.attempts():
        attempts.setdefault(member, []).append((attempt, folder))
    count = plan.array_count or 1
    begin = dict.fromkeys(range(count), 0)
    if submission and submission.begin is not None:
        begin = submission.begin
    numbers = sorted({*range(count), *attempts})
    members = [_member(scene, number, attempts.get(number, []), begin.get(number)) for number in numbers]
    state = _joint_state({member.state for member in members})
    over = state in ("ended", "unknown")
    ending = _worst(member.ending for member in members) if over else None
    job = submission.job if submission else _job_of_script(attempts)
    return RunStatus(
        id=run.id,
        name=plan.name or run.id,
        site=plan.site,
        scheduler=plan.scheduler,
        job=job,
        directory=str(run.path),
        state=state,
        ending=ending,
        code=_code(members) if state == "ended" else None,
        reason=_reason(scene, state, ending, job, began=bool(attempts)) if holds else "its directory is gone",
        stop_asked=stop_asked,
        final=state == "ended" and _is_final(scene, plan.scheduler, members),
        submitted=submission.time if submission else None,
        walltime=plan.walltime,
        members=members,
    )


def summary(now: RunStatus) -> RunSummary:
    """A status in one line."""
    attempts = [attempt for member in now.members for attempt in member.attempts]
    return RunSummary(
        name=now.name,
        site=now.site,
        scheduler=now.scheduler,
        job=now.job,
        state=now.state,
        ending=now.ending,
        code=now.code,
        reason=now.reason,
        members=len(now.members),
        counts=now.counts,
        attempts=len(attempts),
        submitted=now.submitted,
        started=min((attempt.started for attempt in attempts if attempt.started), default=None),
        ended=max((attempt.ended for attempt in attempts if attempt.ended), default=None)
        if now.over
        else None,
        stop_asked=now.stop_asked and not now.over,
    )


def members_words(counts: Mapping[str, int]) -> str:
    """How the members of an array are doing, from a summary's `counts`: `3/8 done, 1 failed, 4 running`."""
    rest = (word for word in (*ENDINGS, "running", "pending") if word != "done")
    told = [f"{counts.get('done', 0)}/{sum(counts.values())} done"]
    return ", ".join([*told, *(f"{counts[word]} {word}" for word in rest if word in counts)])


def failure_words(failure: Failure) -> str:
    """A failure in one line."""
    who = "a rank" if failure.rank is None else f"rank {failure.rank}"
    if failure.log == "stage.log":
        who = "staging"
    how = f"killed by {failure.signal}" if failure.signal else f"exit code {failure.code}"
    return f"{who} on {failure.host} failed first: {how}"


def looks(runs: list[Run], timeout: float | None = None) -> Iterator[list[RunStatus]]:
    """The statuses of runs, looked at again and again until all are over or `timeout` seconds passed."""
    begun = time.monotonic()
    now = [status(run) for run in runs]
    yield now
    while not all(one.over for one in now):
        waited = time.monotonic() - begun
        pause = min(_SLOWEST_POLL, max(_POLL, waited / 50))
        if timeout is not None:
            if waited >= timeout:
                return
            pause = min(pause, timeout - waited)
        time.sleep(pause)
        now = [one if one.over else status(run) for run, one in zip(runs, now, strict=True)]
        yield now


def wait(run: Run, timeout: float | None = None) -> RunStatus:
    """The status of a run as soon as it is over, or when `timeout` seconds have passed."""
    for (now,) in looks([run], timeout):
        last = now
    return last


def condition_holds(condition: str, run: Run) -> bool | None:
    """Whether a dependency's condition holds of a run; False where it never will, None not yet."""
    if os.path.lexists(run.path):
        try:
            check_trusted(run.path)
        except CastoffError:
            return False
    now = status(run)
    if condition == "after":
        return True if now.state != "pending" else None
    if not now.over:
        return None
    well = now.ending == "done"
    return condition == "afterany" or well == (condition == "afterok")


def _member(scene: _Scene, number: int, attempts: list[tuple[int, Path]], begin: int | None) -> MemberStatus:
    """`begin`: the attempt that the newest submission starts with; None: it leaves this member alone."""
    newest = max([begin or 0, *(attempt for attempt, _ in attempts)])  # what came before is over
    found = [
        _attempt(scene, number, attempt, folder, newest=attempt == newest) for attempt, folder in attempts
    ]
    state: str
    ending: str | None
    if begin is not None and not found and scene.submission and scene.submission.error is not None:
        state, ending = "ended", "failed"
    elif begin is not None and scene.alive and (not found or found[-1].attempt < begin):
        state, ending = "pending", None
    elif found:
        state, ending = found[-1].state, found[-1].ending
        if state == "ended" and not scene.stop_asked and os.path.lexists(attempts[-1][1] / _REQUEUE):
            if scene.alive:
                state, ending = "pending", None  # its next attempt is about to begin
            elif scene.elsewhere:
                state, ending = "unknown", "unknown"  # it may be about to begin there
    else:
        state, ending = "unknown", "unknown"
    return MemberStatus(number, state, ending, found)


def _attempt(scene: _Scene, member: int, attempt: int, folder: Path, *, newest: bool) -> AttemptStatus:
    records = _names(folder)
    alive = scene.alive and newest
    start = end = failure = None
    if "start.json" in records:
        start = read(folder / "start.json", Start)
    # Until its scheduler has settled it, an ending is believed only if no scheduler is there to do so.
    if "ending.json" in records and (SETTLED in records or not (newest and (alive or scene.elsewhere))):
        end = read(folder / "ending.json", Ending)
    if "failure.json" in records:
        failure = read(folder / "failure.json", Failure)
    return AttemptStatus(
        attempt=attempt,
        state="ended" if end else "running" if alive else "unknown",
        ending=_known(end.ending) if end else None if alive else "unknown",
        code=end.code if end else None,
        reason=end.reason if end else None,
        host=start.host if start else None,
        started=start.time if start else None,
        ended=end.time if end else None,
        failure=failure,
        logs=f"{scene.run.path}/logs/{member}.{attempt}",
    )


def _names(folder: Path) -> list[str]:
    """What a folder holds; nothing where it has gone."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - Path.iterdir takes twice as long
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CastoffError(f"{folder}: cannot be read: {error.strerror}") from error


def _job_of_script(attempts: dict[int, list[tuple[int, Path]]]) -> str | None:
    """The id that a script's scheduler gave it, as the script wrote it down."""
    for found in attempts.values():
        start = read(found[0][1] / "start.json", Start)
        if start and start.job:
            return start.job
    return None


def _is_final(scene: _Scene, scheduler: str, members: list[MemberStatus]) -> bool:
    """Whether an ended run will stay as it is: what its scheduler might start again will not."""
    if scene.submission is not None and scheduler == "local":
        return not scene.alive
    last = [member.attempts[-1] for member in members if member.attempts]
    ended = max((attempt.ended or time.time() for attempt in last), default=0.0)
    return time.time() - ended > _REQUEUE_MEMORY and all(one.ending != "again" for one in last)


def _reason(scene: _Scene, state: str, ending: str | None, job: str | None, *, began: bool) -> str | None:
    """Why it was never submitted, why nobody knows how it ended, or how it can go on."""
    run, submission = scene.run, scene.submission
    if submission and submission.error is not None:
        return f"it could not be submitted: {submission.error}"
    if state == "ended" and ending == "again":
        if submission:
            return f"it stopped early and can go on: castoff resubmit {run.id}"
        return (
            f"it stopped early and can go on; castoff did not submit it, so only the scheduler of job {job} "
            "knows whether it does"
        )
    if state != "unknown":
        return None
    if not submission:
        return "castoff did not submit it, so nothing tells whether its script still runs"
    if scene.elsewhere:
        return f"its scheduler runs, or ran, on {scene.elsewhere}: ask there"
    if not submission.job and not began:
        return f"it was killed while it was submitted, so nothing began; `castoff resubmit {run.id}` sends it"
    return (
        "its scheduler is gone and no ending was written: everything was killed at once, or the "
        "machine went down; castoff does not guess. Read the logs, then resubmit it"
    )


def _joint_state(states: set[str]) -> str:
    if len(states) == 1:
        return next(iter(states))
    if {"running", "pending"} & states:
        return "running"
    return "unknown"


def _known(ending: str) -> str:
    """The ending; a word that is none of castoff's, from a record that somebody else wrote, says nothing."""
    return ending if ending in ENDINGS else "unknown"


def _worst(endings: Iterable[str | None]) -> str | None:
    known = (ending for ending in endings if ending is not None)
    return min(known, key=ENDINGS.index, default=None)


def _code(members: list[MemberStatus]) -> int:
    for member in members:
        if not member.attempts:
            code = 1 if member.ending == "failed" else 0
        elif member.ending == "again":
            code = member.attempts[-1].code or os.EX_TEMPFAIL  # it ended well, but its work is not done
        else:
            code = member.attempts[-1].code or 0
        if code:
            return code
    return 0
