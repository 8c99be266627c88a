"""The content of a run's page, as data: `gathering` reads it, and `page` renders it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from castoff.launcher.history.attempt_use import AttemptUse
from castoff.launcher.history.attempts import HostRanks, Phase
from castoff.launcher.history.metrics import Metrics
from castoff.launcher.history.usage import Total
from castoff.launcher.report.curves import Plot
from castoff.launcher.report.profile import ProfileFacts
from castoff.launcher.report.ranking import Rule
from castoff.launcher.report.results import Result
from castoff.launcher.runs.plan import Plan
from castoff.launcher.runs.provenance import Code
from castoff.launcher.runs.records import Facts, Usage
from castoff.launcher.runs.states import AttemptStatus, RunStatus


@dataclass(frozen=True)
class AttemptFacts:
    """One attempt of a member."""

    words: str
    """Member and attempt, as `3.1`; only the attempt, as `1`, without an array."""
    status: AttemptStatus
    phases: Sequence[Phase] = ()
    hosts: Sequence[HostRanks] = ()
    usage: Usage | None = None
    """The resources that the attempt's job used; set only for the job's last attempt."""


@dataclass(frozen=True)
class MemberFacts:
    """One member: its result and its attempts."""

    result: Result
    attempts: Sequence[AttemptFacts] = ()
    waiting: Phase | None = None
    """The time in the queue until now, if the member is waiting."""


@dataclass(frozen=True)
class Excerpt:
    """Lines of a log, under a title."""

    title: str
    text: str


@dataclass(frozen=True)
class FailureFacts:
    """Why an attempt failed."""

    attempt: str
    why: Sequence[str]
    text: str
    """The last lines that the first failed rank, or setup, printed."""
    log: str | None
    """The path of the log with `text`."""
    others: Sequence[Excerpt] = ()
    """The last output of the other ranks, or their stacks if all hung."""
    others_left_out: int = 0
    hung: bool = False
    """Whether `others` are stacks."""


@dataclass(frozen=True)
class RunFacts:
    """A run at one moment."""

    now: RunStatus
    at: float
    """When the run's state was read, in seconds since the epoch."""
    planned: Facts
    plan: Plan | None
    """None: the script was submitted by hand, or an older castoff planned it."""
    job_text: str
    script_head: str
    code: Code | None
    members: Sequence[MemberFacts]
    hours: Total
    failures: Sequence[FailureFacts] = ()
    failures_left_out: int = 0
    metrics: Metrics = field(default_factory=Metrics)
    """The metrics of the only member; for an array, those of the first member that has any, of which only
    packages and device are shown.
    """
    profile: ProfileFacts | None = None
    rule: Rule | None = None
    plots: Sequence[Plot] = ()
    silent: Mapping[int, float] = field(default_factory=dict)
    """When the ranks of running members became silent, of those that are silent."""
    compared: int = 0
    """The number of members in the plots of an array."""
    metrics_left_out: int = 0
    """The number of metrics of an array that are not drawn."""

    use: AttemptUse | None = None
    """What the newest attempt of the only member used that recorded something."""
    use_plots: Sequence[Plot] = ()

    @property
    def is_array(self) -> bool:
        """Whether the run has several members."""
        return len(self.now.members) > 1
