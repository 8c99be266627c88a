"""survey(run): a run as its directory tells of it, before any scheduler is asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from launcher.runs.records import Ending, Facts, Failure, LastWord, Next, Start, Submission, read
from launcher.runs.run import SETTLED, STOP, Run, names_in
from launcher.runs.states import AttemptStatus
from launcher.schedulers.local.control import is_alive, took_newest
from launcher.schedulers.registry import queued

if TYPE_CHECKING:
    from launcher.status.survey import QueuedRun


LAST_WORD = "scheduler.json"
"""The scheduler's last word on an attempt, in its folder."""

_KILLED = (137, 143)
"""Codes of what TERM or KILL has ended, which its scheduler may have sent."""


class Attempt(NamedTuple):
    """The records of one start of a member."""

    number: int
    folder: Path
    start: Start | None
    end: Ending | None
    failure: Failure | None
    last: LastWord | None
    next: str | None = None
    """The job that it has submitted to go on."""
    finished: bool = False
    """Whether rank 0 has ended well."""
    settled: bool = False
    """Whether its local scheduler has seen to it that nothing of it is left."""
    requeue: bool = False
    """Whether its local scheduler is to begin another one."""

    @property
    def job(self) -> str | None:
        """The job that it was a start of."""
        if self.start and self.start.job:
            return self.start.job
        return self.last.job if self.last else None

    @property
    def goes_on(self) -> bool:
        """Whether its scheduler has queued it again, or its script has asked for that."""
        if self.last is not None:
            return self.last.requeued
        return self.end is not None and self.end.ending == "again" and not self.end.code

    @property
    def is_certain(self) -> bool:
        """Whether its ending is known for good from the records."""
        if self.last is not None:
            return not self.last.requeued
        return self.end is not None and not (
            self.end.ending == "cancelled" or self.goes_on or self.was_killed
        )

    @property
    def was_killed(self) -> bool:
        """Whether it failed by a signal that others send: for want of memory, say."""
        if self.end is None or self.end.ending != "failed":
            return False
        signal = self.failure.signal if self.failure else None
        return self.end.code in _KILLED or signal in ("SIGKILL", "SIGTERM")

    def status(
        self,
        run: Run,
        member: int,
        state: str,
        ending: str | None,
        code: int | None = None,
        reason: str | None = None,
        ended: float | None = None,
    ) -> AttemptStatus:
        """What is told of it."""
        return AttemptStatus(
            attempt=self.number,
            state=state,
            ending=ending,
            code=code,
            reason=reason,
            host=self.start.host if self.start else None,
            started=self.start.time if self.start else None,
            ended=ended,
            failure=self.failure,
            logs=f"{run.path}/logs/{member}.{self.number}",
        )


def _attempt(number: int, folder: Path) -> Attempt:
    """The records of an attempt.

    Raises:
        CastoffError: one cannot be read.
    """
    held = {*names_in(folder)}
    following = read(folder / "next.json", Next) if "next.json" in held else None
    return Attempt(
        number,
        folder,
        read(folder / "start.json", Start) if "start.json" in held else None,
        read(folder / "ending.json", Ending) if "ending.json" in held else None,
        read(folder / "failure.json", Failure) if "failure.json" in held else None,
        read(folder / LAST_WORD, LastWord) if LAST_WORD in held else None,
        following.job if following else None,
        finished="finished" in held,
        settled=SETTLED in held,
        requeue="requeue" in held,
    )


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
    attempts: dict[int, list[Attempt]]
    """Of each member its attempts."""
    queued: QueuedRun | None
    """None: neither Slurm nor PBS knows of it."""
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
    submission, plan = run.submission(), run.facts()
    attempts: dict[int, list[Attempt]] = {}
    for member, number, folder in run.attempts():
        attempts.setdefault(member, []).append(_attempt(number, folder))
    scene = Scene(run, bool(holds), submission, plan, alive, STOP in holds, attempts, None, held)
    # A launch in an allocation is castoff's own affair, as what the local scheduler runs.
    if queued(plan.scheduler) is None or took_newest(run):
        return scene
    from launcher.status.survey import QueuedRun

    return scene._replace(queued=QueuedRun(run, submission, plan, attempts, being_sent=alive))
