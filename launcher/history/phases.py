"""What a run's attempts spent their time on: in the queue, in setup, until the first report, and after it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from castoff.launcher.history.metrics import METRICS, first_time
from castoff.launcher.runs.records import Submission
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import AttemptStatus, MemberStatus, RunStatus

QUEUED, SETUP, START_UP, RUNNING = "queued", "setup", "start-up", "running"
"""Before the script began; before it started the ranks; before the program's first report; the rest."""

LAUNCHED = "launched"
"""The file in an attempt's folder with the second in which its ranks were started."""


class Phase(NamedTuple):
    """A part of an attempt's time; times are seconds since the epoch."""

    name: str
    start: float
    end: float | None
    """None: it lasts."""

    def seconds(self, now: float) -> float:
        """How long it took, or has taken by now."""
        return max((now if self.end is None else self.end) - self.start, 0.0)


def phases(run: RunDirectory, now: RunStatus, member: MemberStatus, attempt: AttemptStatus) -> list[Phase]:
    """The phases of an attempt, in order; none if it has not begun.

    START_UP ends with the first line of the attempt's metrics; where it has none, RUNNING begins when the
    ranks were started.

    Raises:
        CastoffError: the run's record of its submission cannot be read.
    """
    if attempt.started is None:
        return []
    folder = run.path / "attempts" / f"{member.member}.{attempt.attempt}"
    marks = [(SETUP, attempt.started)]
    launched, first = _launched(folder), first_time(folder / METRICS)
    if launched is not None:
        marks += [(START_UP, launched), (RUNNING, first)] if first is not None else [(RUNNING, launched)]
    queued = _queued_since(run.submission(), member, attempt)
    if queued is not None:
        marks.insert(0, (QUEUED, min(queued, attempt.started)))
    last = attempt.ended if attempt.state != "running" else None
    ends = [*(at for _, at in marks[1:]), last]
    # Hosts' clocks differ: a phase that would end before it began took no time.
    pairs = zip(marks, ends, strict=True)
    return [Phase(name, start, None if end is None else max(start, end)) for (name, start), end in pairs]


def waiting(run: RunDirectory, member: MemberStatus) -> Phase | None:
    """The time that a member which waits in a queue has waited; None if it does not.

    Raises:
        CastoffError: the run's record of its submission cannot be read.
    """
    if member.state != "pending":
        return None
    since = member.attempts[-1].ended if member.attempts else None
    submission = run.submission()
    submitted = submission.time if submission else None
    since = max((one for one in (since, submitted) if one is not None), default=None)
    return None if since is None else Phase(QUEUED, since, None)


def _queued_since(
    submission: Submission | None, member: MemberStatus, attempt: AttemptStatus
) -> float | None:
    """Since when an attempt waited: its submission, or the end of the one before it, whichever is later."""
    if attempt.restart:  # its job ran all the time
        return None
    submissions = [*submission.earlier, submission] if submission else []
    began = (attempt.started or 0.0) + 1
    # Scripts count whole seconds: what ended in the second of the submission ended after it.
    times = [float(int(one.time)) for one in submissions if one.time is not None and one.time < began]
    times += [one.ended for one in member.attempts if one.attempt < attempt.attempt and one.ended]
    return max((one for one in times if one < began), default=None)


def _launched(folder: Path) -> float | None:
    try:
        text = (folder / LAUNCHED).read_text(encoding="ascii").strip()
        return float(text) if text.isdecimal() and len(text) < 12 else None
    except (OSError, UnicodeDecodeError):
        return None
