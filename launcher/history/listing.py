"""What a row of a run says: its state, how far it is, why it waits or failed, and the time that is left.

`castoff list`, `status` and `top` and the notebook show these words, each in a form of its own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from castoff.launcher.errors import CastoffError
from castoff.launcher.history.metrics import Metrics, step_words
from castoff.launcher.history.progress import Left, Metric, Progress, progress_of, time_left
from castoff.launcher.logs.failures import script_headline
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import EXPLAINED, RunStatus, RunSummary, members_words, summary
from castoff.launcher.status.survey import RunRecords
from castoff.launcher.status.watch import judge
from castoff.launcher.text.layout import number
from castoff.launcher.text.words import brief, moment


class RunWords(NamedTuple):
    """What a row of a run says; an empty text where there is nothing to say."""

    state: str
    """How it ended, else its state."""
    members: str
    """How many members of an array are done, failed, running and so on."""
    steps: str
    """`820/2,000`."""
    part: float | None
    """How much of its steps or members is done, from 0 to 1; None: not known."""
    loss: Metric | None
    """The newest loss; it may not be finite."""
    left: Left | None
    """The time that it has left while it runs."""
    took: str
    """The time from its first start to its end, or until now."""
    why: str
    """When it is expected to start, and why it waits, failed or is unknown, or how it can be resumed."""

    @property
    def is_explained(self) -> bool:
        """Whether `why` says more than how far the run is."""
        return bool(self.why) and self.state in ("pending", "unknown", *EXPLAINED)

    @property
    def progress(self) -> str:
        """How far it is, in one line: `step 820/2,000, loss 0.21, 9m to the last step`."""
        loss = f"{self.loss.name} {number(self.loss.value)}" if self.loss else ""
        left = left_words(self.left) if self.left else ""
        return ", ".join(filter(None, (self.members, self.steps and f"step {self.steps}", loss, left)))


def run_words(
    run: RunSummary, now: float, progress: Progress | None = None, deadline: float | None = None
) -> RunWords:
    """The words of a run; `progress`: of its program; `deadline`: when its walltime is over."""
    progress, is_array = progress or Progress(), run.members > 1
    until = run.ended if run.over else now
    return RunWords(
        state=run.word,
        members=members_words(run.counts) if is_array else "",
        steps="" if progress.step is None else steps_words(progress.step, progress.total),
        part=run.counts.get("done", 0) / run.members if is_array else progress.part,
        loss=progress.loss,
        left=time_left(progress.end, deadline, now) if run.state == "running" else None,
        took=brief(until - run.started) if until and run.started else "",
        why=_why(run, now),
    )


def words_of_status(status: RunStatus, metrics: Sequence[Metrics], now: float) -> RunWords:
    """The words of a run with its whole status; `metrics`: those of its only member, if they were read."""
    attempts = status.members[0].attempts if len(status.members) == 1 else []
    began = attempts[-1].started if attempts else None
    progress = progress_of(metrics[0], since=began or 0.0) if metrics and attempts else None
    return run_words(summary(status), now, progress, deadline_of(status))


def deadline_of(status: RunStatus) -> float | None:
    """When the walltime of a run's only member is over, in seconds since the epoch; None: not known."""
    attempts = status.members[0].attempts if len(status.members) == 1 else []
    began = attempts[-1].started if attempts else None
    return began + status.walltime if began and status.walltime else None


def explained(run: RunSummary, directory: str, status: RunStatus | None) -> RunSummary:
    """A run's summary; if it failed and no record says why, with what the log of its script says.

    `status`: the run's whole status, if it was looked at.
    """
    if run.ending != "failed" or run.reason:
        return run
    try:
        opened = RunDirectory(Path(directory))
        (status,) = (status,) if status else judge([RunRecords(opened)])
    except CastoffError:  # it may not be used any more, or its records were damaged since it ended
        return run
    failed = (member for member in status.members if member.ending == "failed" and member.attempts)
    first = next(failed, None)
    if first is None:
        return run
    headline = script_headline(opened, first.member, first.attempts[-1])
    return msgspec.structs.replace(run, reason=headline)


def steps_words(step: float, total: float | None) -> str:
    """The newest step and how many there will be, if that is known: `820/2,000`."""
    return f"{step_words(step)}/{step_words(total)}" if total else step_words(step)


def left_words(left: Left) -> str:
    """The time that a run has left, and what ends it then."""
    return f"{brief(left.seconds)} to the {'walltime' if left.is_walltime else 'last step'}"


def start_words(expected: float, now: float) -> str:
    """When a run is expected to begin."""
    when = f"in {brief(expected - now)}" if expected > now else "any moment"
    return f"at about {moment(expected)}, {when}"


def site_words(status: RunStatus) -> str:
    """Where a run is: its site, and the id of its job there."""
    return (status.site or "not known") + (f", job {status.job}" if status.job else "")


def _why(run: RunSummary, now: float) -> str:
    reason = " ".join((run.reason or "").split())
    expected = run.expected_start
    if run.state != "pending" or expected is None:
        return reason
    is_today = time.localtime(expected)[:3] == time.localtime(now)[:3]
    clock = time.strftime("%H:%M" if is_today else "%m-%d %H:%M", time.localtime(expected))
    return f"starts ~{clock}; {reason}" if reason else f"starts ~{clock}"
