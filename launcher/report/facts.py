"""What a page shows of a run, as data: `gathering` reads it, `page` writes it down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from castoff.launcher.history.attempts import HostRanks, Phase
from castoff.launcher.history.metrics import Metrics
from castoff.launcher.history.usage import Total
from castoff.launcher.report.curves import Plot
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
    """`1`, and of an array's member 3 `3.1`."""
    status: AttemptStatus
    phases: Sequence[Phase] = ()
    hosts: Sequence[HostRanks] = ()
    usage: Usage | None = None
    """What its job used; at the job's last attempt only."""


@dataclass(frozen=True)
class MemberFacts:
    """One member: its result and its attempts."""

    result: Result
    attempts: Sequence[AttemptFacts] = ()
    waiting: Phase | None = None
    """The time that it has waited in a queue by now, if it does."""


@dataclass(frozen=True)
class Excerpt:
    """Lines of a log, and what they are."""

    title: str
    text: str


@dataclass(frozen=True)
class FailureFacts:
    """Why an attempt failed."""

    attempt: str
    why: Sequence[str]
    text: str
    """What the rank that failed first, or setup, wrote last."""
    log: str | None
    """The path of that log."""
    others: Sequence[Excerpt] = ()
    """What the other ranks wrote last, or their stacks if all hung."""
    others_left_out: int = 0
    hung: bool = False
    """Whether `others` are stacks."""


@dataclass(frozen=True)
class RunFacts:
    """A run at a time."""

    now: RunStatus
    at: float
    """When it was looked at, in seconds since the epoch."""
    planned: Facts
    plan: Plan | None
    """None: the script stood alone, or an older castoff planned it."""
    job_text: str
    script_head: str
    code: Code | None
    members: Sequence[MemberFacts]
    hours: Total
    failures: Sequence[FailureFacts] = ()
    failures_left_out: int = 0
    metrics: Metrics = field(default_factory=Metrics)
    """Of the only member; of an array's first that has any: its packages and its device."""
    rule: Rule | None = None
    plots: Sequence[Plot] = ()
    compared: int = 0
    """How many members the plots of an array show."""

    @property
    def is_array(self) -> bool:
        """Whether it has several members."""
        return len(self.now.members) > 1
