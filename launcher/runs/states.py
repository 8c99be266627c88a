"""The states and endings of runs, as data and in words."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from castoff.launcher.runs.records import Code, Failure, Number, Seconds, SetAside
from castoff.launcher.text import failure

ENDINGS = (
    "unknown",
    "failed",
    "out-of-memory",
    "node-failure",
    "walltime",
    "preempted",
    "cancelled",
    "resume",
    "done",
)
"""All endings, the worst first."""

FAILED = ("failed", "out-of-memory", "node-failure")

NOT_RESUMED = ("walltime", "preempted")

EXPLAINED = (*FAILED, *NOT_RESUMED)
"""Endings for which a list shows a reason: why the run failed, or why it was not started again."""


class AttemptStatus(msgspec.Struct, frozen=True):
    """One start of a member."""

    attempt: int
    state: str
    """running, ended or unknown."""
    ending: str | None
    code: int | None
    reason: str | None
    """The reason for the ending, if the scheduler knows more than `ending`."""
    host: str | None
    started: float | None
    """Seconds since the epoch; None if the attempt never began."""
    ended: float | None
    failure: Failure | None
    logs: str
    """The folder of the ranks' logs."""
    restart: int | None = None
    """Which restart of its job the attempt was, counted from 1; None: the job's first attempt."""

    @property
    def word(self) -> str:
        """The ending, or the state if there is no ending."""
        return self.ending or self.state

    def seconds(self, now: float) -> float | None:
        """Seconds that the attempt took, or has run until `now`; None if it never began or its end is
        unknown.
        """
        until = now if self.state == "running" else self.ended
        if self.started is None or until is None:
            return None
        return max(until - self.started, 0.0)  # a clock that was set back would make it negative


class MemberStatus(msgspec.Struct, frozen=True):
    """One member of a run and its attempts."""

    member: int
    state: str
    """pending, running, ended or unknown."""
    ending: str | None
    attempts: list[AttemptStatus]
    reason: str | None = None
    """Why the member waits or is unknown, if its scheduler has reported that."""
    dependency_never_satisfied: bool = False
    """Whether the member's dependency can never be satisfied, so that the member never begins."""
    expected_start: float | None = None
    """When the scheduler expects the member to begin, in seconds since the epoch; None if the member is not
    waiting, or if there is no estimate.
    """

    @property
    def word(self) -> str:
        """The ending, or the state if there is no ending."""
        return self.ending or self.state


class _Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that a run's status and its summary share."""

    name: str
    site: str = ""
    scheduler: str = ""
    job: str | None = None
    """The scheduler's job id."""
    state: str
    """pending, running, ended or unknown."""
    ending: str | None = None
    """The worst of the members' endings; None while the run is active."""
    code: Code | None = None
    """The first exit code that is not 0 of a member with the run's ending, else 0; None while the run is
    active or unknown.
    """
    reason: str | None = None
    """Why the run waits, failed, is unknown or was never submitted, or how it can be resumed."""
    stop_requested: bool = False
    """Whether somebody asked the run to stop early."""
    submitted: Seconds | None = None
    """Seconds since the epoch; None if castoff did not submit the run."""
    unsettled: bool = False
    """Whether the state is unknown only for now: the scheduler did not answer, or must be asked once more."""

    @property
    def over(self) -> bool:
        """Whether the run is over, as far as castoff knows."""
        return self.state == "ended" or (self.state == "unknown" and not self.unsettled)

    @property
    def word(self) -> str:
        """The ending, else the state; `stopping` if somebody asked the run to stop and it is not over."""
        return "stopping" if self.stop_requested and not self.over else self.ending or self.state

    @property
    def state_words(self) -> str:
        """The state and the ending, as in `ended, failed (code 3)` or `running, asked to stop`."""
        ending = f", {self.ending}" if self.ending not in (None, self.state) else ""
        code = f" (code {self.code})" if self.code else ""
        stop = ", asked to stop" if self.stop_requested and not self.over else ""
        return f"{self.state}{ending}{code}{stop}"


class RunStatus(_Summary, frozen=True, kw_only=True):
    """The state of a run, and of each of its members."""

    id: str
    """The run's name and time, as in `hello-20261128-101500-1f2e`."""
    directory: str
    """The run directory."""
    final: bool
    """Whether only a resubmission can change this status."""
    walltime: int | None
    """Seconds that each attempt may take; None: no limit, or not known."""
    members: list[MemberStatus]
    """The state of each member; a job without an array has one."""
    set_aside: list[SetAside] = []
    """Hosts on which the run's jobs start no more ranks, and why."""

    def __repr__(self) -> str:
        """One line, even for large arrays, because notebooks print it."""
        facts = {name: getattr(self, name) for name in ("id", "state", "ending", "code", "reason")}
        words = [f"{name}={value!r}" for name, value in facts.items() if value is not None]
        return f"{type(self).__name__}({', '.join(words)}, counts={self.counts})"

    @property
    def counts(self) -> dict[str, int]:
        """The number of members with each ending, or with each state if they have no ending."""
        return dict(Counter(member.word for member in self.members))

    @property
    def expected_start(self) -> float | None:
        """The earliest expected start of a waiting member; None if there is no estimate."""
        return min((member.expected_start for member in self.members if member.expected_start), default=None)

    @property
    def never_begins(self) -> bool:
        """Whether all members that are left wait for dependencies that can never be satisfied."""
        left = [member for member in self.members if member.state in ("pending", "running")]
        return bool(left) and not self.unsettled and all(member.dependency_never_satisfied for member in left)


class RunSummary(_Summary, frozen=True, omit_defaults=True, kw_only=True):
    """A run in one line of a list."""

    members: Number = 0
    counts: dict[str, Number] = {}
    """As `RunStatus.counts`."""
    attempts: Number = 0
    """The attempts of all members together."""
    started: Seconds | None = None
    ended: Seconds | None = None
    """Seconds since the epoch; None if unknown."""
    expected_start: Seconds | None = None
    """As `RunStatus.expected_start`."""


def summary(status: RunStatus) -> RunSummary:
    """Summarise a status in one line of a list."""
    attempts = [attempt for member in status.members for attempt in member.attempts]
    ended = [attempt.ended for attempt in attempts if attempt.ended]
    shared = {name: getattr(status, name) for name in _Summary.__struct_fields__}
    shared["stop_requested"] = status.stop_requested and not status.over
    return RunSummary(
        **shared,
        members=len(status.members),
        counts=status.counts,
        attempts=len(attempts),
        started=min((attempt.started for attempt in attempts if attempt.started), default=None),
        ended=max(ended, default=None) if status.over else None,
        expected_start=status.expected_start,
    )


def ended_as(number: int, attempts: list[AttemptStatus]) -> MemberStatus:
    """The status of a member whose last attempt is over, or whose submission failed if it has no attempt."""
    if not attempts:
        return MemberStatus(number, "ended", "failed", [])
    last = attempts[-1]
    reason = last.reason if last.state == "unknown" else None
    return MemberStatus(number, last.state, last.ending, attempts, reason)


def failed_because(members: Iterable[MemberStatus], ending: str | None) -> str | None:
    """Why the first member with this ending failed or was not started again; None if not recorded."""
    if ending not in EXPLAINED:
        return None
    attempts = (member.attempts[-1] for member in members if member.ending == ending and member.attempts)
    reasons = (in_short(attempt.failure, attempt.reason) for attempt in attempts)
    return next((reason for reason in reasons if reason), None)


def in_short(first: Failure | None, reason: str | None) -> str:
    """The reasons for an attempt's ending in one line, the most telling first, since lists cut the end."""
    if first is None or not first.detail:
        return "; ".join(why(first, reason))
    return "; ".join((first.detail, *why(msgspec.structs.replace(first, detail=None), reason)))


def expected_words(start: float) -> str:
    """The expected start in words, which follow the reason why the run waits."""
    return time.strftime("expected to start at about %Y-%m-%d %H:%M:%S", time.localtime(start))


def members_words(counts: Mapping[str, int]) -> str:
    """The members' endings and states, from a summary's `counts`: `3/8 done, 1 failed, 4 running`."""
    rest = (word for word in (*ENDINGS, "running", "pending") if word != "done")
    facts = [f"{counts.get('done', 0)}/{sum(counts.values())} done"]
    return ", ".join([*facts, *(f"{counts[word]} {word}" for word in rest if word in counts)])


def attempt_words(member: int, attempt: int, *, is_array: bool) -> str:
    """An attempt as castoff prints it: `1`, or `3.1` for member 3 of an array."""
    return f"{member}.{attempt}" if is_array else str(attempt)


def failure_words(first: Failure) -> str:
    """A failure in one line, in the words of `castoff.launcher.text.failure`."""
    return failure.failure_words(msgspec.structs.asdict(first))


def why(first: Failure | None, reason: str | None) -> list[str]:
    """The reasons for an attempt's ending, one a line: its first failure, and what else is recorded."""
    reasons = [reason] if reason else []
    if first is None or (first.reason == failure.HANG and reason):  # the reason names the ranks that hung
        return reasons
    return [failure_words(first), *reasons]


def aggregate_state(members: Iterable[MemberStatus]) -> str:
    """Derive a run's state from those of its members."""
    states = {member.state for member in members}
    if len(states) == 1:
        return next(iter(states))
    if {"running", "pending"} & states:
        return "running"
    return "unknown"


def known_ending(ending: str) -> str:
    """An ending from a record, which others may have written; `unknown` if castoff has no such ending."""
    return ending if ending in ENDINGS else "unknown"


def aggregate_ending(endings: Iterable[str | None]) -> str | None:
    """Derive a run's ending: the worst of its members'."""
    known = (ending for ending in endings if ending is not None)
    return min(known, key=ENDINGS.index, default=None)


def code_of(members: list[MemberStatus]) -> int:
    """The exit code of a run that has ended: the first that is not 0 of the members with its ending, as
    others may have been cancelled, else of all; else 0.
    """
    worst = aggregate_ending(member.ending for member in members)
    for member in sorted(members, key=lambda one: one.ending != worst):
        code = (member.attempts[-1].code or 0) if member.attempts else int(member.ending == "failed")
        if member.ending == "resume" and member.attempts:  # a member may exit with 0 before its work is done
            code = code or os.EX_TEMPFAIL
        if code:
            return code
    return 0
