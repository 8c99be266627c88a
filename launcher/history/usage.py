"""What the starts of a run's jobs requested and used: node-hours, processors, memory and devices.

The scheduler's accounting reports the use, or castoff's own scheduler, which looks at the processes now and
then. What is known of a job that is over is kept in its run directory, because schedulers forget it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.records import Facts, Usage, read
from castoff.launcher.runs.run import USAGE, RunDirectory
from castoff.launcher.runs.states import AttemptStatus, MemberStatus, RunStatus
from castoff.launcher.schedulers.base_queue import Queue
from castoff.launcher.schedulers.job_info import JobUsage
from castoff.launcher.status.survey import RunRecords


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


class Share(NamedTuple):
    """One start of a job, and what it cost."""

    site: str
    account: str
    """Empty: the scheduler's default, or none."""
    queue: str
    ending: str
    """How it ended, or `running`."""
    requested: float | None
    """Node-hours until its walltime; None: it had none."""
    used: float | None
    """Node-hours from its beginning to its end, or until now; None: nobody knows when it ended."""


class Total(NamedTuple):
    """Several starts together."""

    starts: int
    requested: float
    used: float
    unbounded: int
    """Starts without a walltime, which requested is without."""
    unknown: int
    """Starts whose end nobody knows, which used is without."""


def shares(now: RunStatus, plan: Facts, *, at: float, since: float = 0.0) -> Iterator[Share]:
    """What the starts of a run cost that began since a time, both in seconds since the epoch; `at`: now.

    A start that waits costs nothing yet. A script that stood alone counts as one on as many nodes as its
    layout has.
    """
    nodes = plan.held_nodes or sum(count for _, count in plan.layout) or 1
    for start in starts(now):
        if start.began is None or start.began < since:
            continue
        held = start.seconds(at)
        yield Share(
            site=now.site,
            account=plan.account or "",
            queue=plan.queue or "",
            ending=start.last.word,
            requested=None if now.walltime is None else nodes * now.walltime / 3600,
            used=None if held is None else nodes * held / 3600,
        )


def total(found: Iterable[Share]) -> Total:
    """The sum of shares."""
    held = [*found]
    return Total(
        starts=len(held),
        requested=sum(one.requested or 0.0 for one in held),
        used=sum(one.used or 0.0 for one in held),
        unbounded=sum(one.requested is None for one in held),
        unknown=sum(one.used is None for one in held),
    )


_CLOCKS = 120.0
"""Seconds by which the start of a job and that of its script may differ: prologs, and two clocks."""


def usages(run: RunDirectory, now: RunStatus, *, asks: bool = True) -> dict[tuple[int, int], Usage]:
    """What jobs used, by member and the job's last attempt; those of which nothing is known are missing.

    With `asks`, the scheduler is asked once about all those of which nothing is on record.

    Raises:
        CastoffError: a record of the run cannot be read.
    """
    found: dict[tuple[int, int], Usage] = {}
    unknown: list[Start] = []
    for start in starts(now):
        folder = run.path / "attempts" / f"{start.member}.{start.last.attempt}"
        held = read(folder / USAGE, Usage)
        if held is not None:
            found[start.member, start.last.attempt] = held
        elif start.began is not None:
            unknown.append(start)
    if unknown and asks:
        for start, usage in _asked(run, unknown):
            found[start.member, start.last.attempt] = usage
    return found


def _asked(run: RunDirectory, wanted: list[Start]) -> Iterator[tuple[Start, Usage]]:
    """What the scheduler says; kept, if the job is over and the scheduler had the time to learn of that."""
    records = RunRecords(run)
    if records.scheduler is None or not records.queued:
        return
    queue = records.scheduler.queue()
    if queue.elsewhere(records.clusters):
        return
    jobs = {one.job for found in records.attempts.values() for one in found if one.job}
    reported = queue.usage(jobs)
    for start in wanted:
        usage = _matching(start, records, reported)
        if usage is None:
            continue
        if start.is_over and _has_settled(start, queue):
            with contextlib.suppress(OSError, CastoffError):  # another may ask again
                run.write(f"attempts/{start.member}.{start.last.attempt}/{USAGE}", usage)
        yield start, usage


def _matching(start: Start, records: RunRecords, reported: Iterable[JobUsage]) -> Usage | None:
    """What is reported of a start: of the same job, the one that began nearest to it."""
    numbers = {one.number: one.job for one in records.attempts.get(start.member, [])}
    key = records.key(start.member, numbers.get(start.attempts[0].attempt))
    if key is None or start.began is None:
        return None
    near = {
        abs(one.start - start.began): one.usage
        for one in reported
        if (one.job, one.task) == key and one.start is not None
    }
    nearest = min(near, default=None)
    return None if nearest is None or nearest > _CLOCKS else near[nearest]


def _has_settled(start: Start, queue: Queue) -> bool:
    ended = start.last.ended
    return ended is not None and time.time() - ended > queue.lag + _CLOCKS
