"""The starts of a run's jobs: attempts that one job of the scheduler made belong together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from castoff.launcher.runs.states import AttemptStatus, MemberStatus, RunStatus


@dataclass
class Start:
    """One start of a member's job: an attempt, and those that its script began after it in the same job."""

    member: int
    attempts: list[AttemptStatus] = field(default_factory=list)

    @property
    def began(self) -> float | None:
        """In seconds since the epoch."""
        return self.attempts[0].started

    @property
    def last(self) -> AttemptStatus:
        """Its newest attempt."""
        return self.attempts[-1]

    @property
    def is_over(self) -> bool:
        """Whether its end is known."""
        return self.last.state == "ended" and self.last.ended is not None

    def seconds(self, now: float) -> float | None:
        """How long it held its nodes, or has by now; None: it never began, or nobody knows when it ended."""
        if self.began is None or (self.last.state != "running" and self.last.ended is None):
            return None
        until = now if self.last.state == "running" or self.last.ended is None else self.last.ended
        return max(until - self.began, 0.0)


def starts(now: RunStatus) -> list[Start]:
    """The starts of all jobs of a run, those of the first member first."""
    return [start for member in now.members for start in starts_of(member)]


def starts_of(member: MemberStatus) -> Iterator[Start]:
    """The starts of one member's jobs."""
    found: Start | None = None
    for attempt in member.attempts:
        if found is None or not attempt.restart:
            if found is not None:
                yield found
            found = Start(member.member)
        found.attempts.append(attempt)
    if found is not None:
        yield found
