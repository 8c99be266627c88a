"""What lists show about a run: its state, its progress, why it waits or failed, and the time left.

`castoff list`, `status`, `top` and notebooks show the same texts, each in its own form.
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
from castoff.launcher.logs.silence import silence_words
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import EXPLAINED, RunStatus, RunSummary, members_words, summary
from castoff.launcher.status.survey import RunRecords
from castoff.launcher.status.watch import judge
from castoff.launcher.text.layout import number
from castoff.launcher.text.words import brief, moment


class RunWords(NamedTuple):
    """What the list of runs says about one run, as texts; a text is empty if it does not apply."""

    state: str
    """The ending, or the state if there is no ending."""
    members: str
    """The numbers of an array's members that are done, failed, running and so on."""
    steps: str
    """The step and the total, as `820/2,000`."""
    part: float | None
    """The fraction of the run's steps or members that is done, from 0 to 1; None: not known."""
    loss: Metric | None
    """The newest loss, which may not be finite."""
    left: Left | None
    """The time left, while the run is running."""
    silence: str
    """How long the ranks of a running run have been silent, if that is long: `no output for 2m`."""
    took: str
    """The time from the run's first start to its end, or until now."""
    why: str
    """When the run is expected to start, and why it waits, failed or is unknown, or how to resume it."""

    @property
    def is_explained(self) -> bool:
        """Whether `why` matters more than the progress."""
        return bool(self.why) and self.state in ("pending", "unknown", *EXPLAINED)

    @property
    def progress(self) -> str:
        """The progress in one line: `step 820/2,000, loss 0.21, 9m to the last step`."""
        loss = f"{self.loss.name} {number(self.loss.value)}" if self.loss else ""
        left = left_words(self.left) if self.left else ""
        return ", ".join(filter(None, (self.members, self.steps and f"step {self.steps}", loss, left)))


def run_words(
    run: RunSummary,
    now: float,
    progress: Progress | None = None,
    deadline: float | None = None,
    silent_since: float | None = None,
) -> RunWords:
    """What lists show about a run; `progress`: its program's progress; `deadline`: when its walltime ends;
    `silent_since`: when its ranks became silent.
    """
    progress, is_array = progress or Progress(), run.members > 1
    until = run.ended if run.over else now
    return RunWords(
        state=run.word,
        members=members_words(run.counts) if is_array else "",
        steps="" if progress.step is None else steps_words(progress.step, progress.total),
        part=run.counts.get("done", 0) / run.members if is_array else progress.part,
        loss=progress.loss,
        left=time_left(progress.end, deadline, now) if run.state == "running" else None,
        silence=silence_words(silent_since, now),
        took=brief(until - run.started) if until and run.started else "",
        why=_why(run, now),
    )


def words_of_status(status: RunStatus, metrics: Sequence[Metrics], now: float) -> RunWords:
    """What lists show about a run with a full status; `metrics`: its only member's metrics, if they were
    read.
    """
    attempts = status.members[0].attempts if len(status.members) == 1 else []
    began = attempts[-1].started if attempts else None
    progress = progress_of(metrics[0], since=began or 0.0) if metrics and attempts else None
    return run_words(summary(status), now, progress, deadline_of(status))


def deadline_of(status: RunStatus) -> float | None:
    """When the walltime of a run's only member ends, in seconds since the epoch; None: not known."""
    attempts = status.members[0].attempts if len(status.members) == 1 else []
    began = attempts[-1].started if attempts else None
    return began + status.walltime if began and status.walltime else None


def explained(run: RunSummary, directory: str, status: RunStatus | None) -> RunSummary:
    """Add the reason to the summary of a failed run that was kept without one: the script's log, which
    explains it, may appear late. `status`: the run's full status, if it was read already.
    """
    if run.ending != "failed" or run.reason:
        return run
    try:
        (status,) = (status,) if status else judge([RunRecords(RunDirectory(Path(directory)))])
    except CastoffError:  # the directory is no longer trusted, or its records were damaged since the end
        return run
    return msgspec.structs.replace(run, reason=status.reason)


def steps_words(step: float, total: float | None) -> str:
    """The newest step, and the total number of steps if known: `820/2,000`."""
    return f"{step_words(step)}/{step_words(total)}" if total else step_words(step)


def left_words(left: Left) -> str:
    """The time that a run has left, and whether its last step or its walltime ends it."""
    return f"{brief(left.seconds)} to the {'walltime' if left.is_walltime else 'last step'}"


def start_words(expected: float, now: float) -> str:
    """The expected start of a run, in words."""
    when = f"in {brief(expected - now)}" if expected > now else "any moment"
    return f"at about {moment(expected)}, {when}"


def site_words(status: RunStatus) -> str:
    """The site of a run, and the id of its job there."""
    return (status.site or "not known") + (f", job {status.job}" if status.job else "")


def _why(run: RunSummary, now: float) -> str:
    reason = " ".join((run.reason or "").split())
    expected = run.expected_start
    if run.state != "pending" or expected is None:
        return reason
    is_today = time.localtime(expected)[:3] == time.localtime(now)[:3]
    clock = time.strftime("%H:%M" if is_today else "%m-%d %H:%M", time.localtime(expected))
    return f"starts ~{clock}; {reason}" if reason else f"starts ~{clock}"
