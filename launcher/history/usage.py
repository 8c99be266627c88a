"""The resources that jobs requested and used: node-hours, processors, memory and devices.

The use is reported by the scheduler's accounting, or by castoff's own scheduler, which measures the processes
every few seconds. The use of a job that is over is recorded in the run directory, since schedulers forget it.
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
    """One start of a member's job: an attempt, and the restarts that its script made in the same job."""

    member: int
    attempts: list[AttemptStatus] = field(default_factory=list)

    @property
    def began(self) -> float | None:
        """The start of the first attempt, in seconds since the epoch."""
        return self.attempts[0].started

    @property
    def last(self) -> AttemptStatus:
        """The newest attempt."""
        return self.attempts[-1]

    @property
    def is_over(self) -> bool:
        """Whether the job has ended at a known time."""
        return self.last.state == "ended" and self.last.ended is not None

    def seconds(self, now: float) -> float | None:
        """Seconds for which the job had its nodes, until `now` if it is running; None if it never began or
        its end is unknown.
        """
        if self.began is None or (self.last.state != "running" and self.last.ended is None):
            return None
        until = now if self.last.state == "running" or self.last.ended is None else self.last.ended
        return max(until - self.began, 0.0)


def starts(now: RunStatus) -> list[Start]:
    """The starts of all jobs of a run, in the order of members."""
    return [start for member in now.members for start in starts_of(member)]


def starts_of(member: MemberStatus) -> Iterator[Start]:
    """The starts of a member's jobs."""
    start: Start | None = None
    for attempt in member.attempts:
        if start is None or not attempt.restart:
            if start is not None:
                yield start
            start = Start(member.member)
        start.attempts.append(attempt)
    if start is not None:
        yield start


class Share(NamedTuple):
    """The cost of one start of a job."""

    site: str
    account: str
    """The account; empty: the scheduler's default account, if it has one."""
    queue: str
    ending: str
    """The ending, or `running`."""
    requested: float | None
    """Node-hours until the walltime; None if there is no walltime."""
    used: float | None
    """Node-hours from start to end, or until now; None if the end is unknown."""


class Total(NamedTuple):
    """The cost of several starts together."""

    starts: int
    requested: float
    used: float
    unbounded: int
    """The number of starts without a walltime, which `requested` leaves out."""
    unknown: int
    """The number of starts whose end is unknown, which `used` leaves out."""


def shares(now: RunStatus, plan: Facts, *, at: float, since: float = 0.0) -> Iterator[Share]:
    """The cost of each start of a run after `since`; `at`: the current time; both in seconds since the epoch.

    A start that is still waiting costs nothing. If a script was submitted by hand, its nodes are those of its
    layout, or else one.
    """
    nodes: float = plan.held_nodes or sum(count for _, count in plan.layout) or 1
    held = nodes
    if share := plan.sharing:  # its part of the nodes, and of what the job asked for
        nodes, held = nodes / share.per_node, share.nodes / share.members
    for start in starts(now):
        if start.began is None or start.began < since:
            continue
        seconds = start.seconds(at)
        yield Share(
            site=now.site,
            account=plan.account or "",
            queue=plan.queue or "",
            ending=start.last.word,
            requested=None if now.walltime is None else held * now.walltime / 3600,
            used=None if seconds is None else nodes * seconds / 3600,
        )


def total(parts: Iterable[Share]) -> Total:
    """Add up shares."""
    costs = [*parts]
    return Total(
        starts=len(costs),
        requested=sum(share.requested or 0.0 for share in costs),
        used=sum(share.used or 0.0 for share in costs),
        unbounded=sum(share.requested is None for share in costs),
        unknown=sum(share.used is None for share in costs),
    )


_CLOCKS = 120.0
"""Seconds by which the starts of a job and of its script may differ, due to prologs and different clocks."""


def usages(run: RunDirectory, now: RunStatus, *, asks: bool = True) -> dict[tuple[int, int], Usage]:
    """The usage of a run's jobs, by member and the job's last attempt. Jobs with unknown usage are missing.

    `asks`: ask the scheduler, once, about all jobs whose usage is not recorded.

    Raises:
        CastoffError: a record of the run cannot be read.
    """
    known: dict[tuple[int, int], Usage] = {}
    unknown: list[Start] = []
    for start in starts(now):
        folder = run.path / "attempts" / f"{start.member}.{start.last.attempt}"
        recorded = read(folder / USAGE, Usage)
        if recorded is not None:
            known[start.member, start.last.attempt] = recorded
        elif start.began is not None:
            unknown.append(start)
    if unknown and asks:
        for start, usage in _asked(run, unknown):
            known[start.member, start.last.attempt] = usage
    return known


def _asked(run: RunDirectory, wanted: list[Start]) -> Iterator[tuple[Start, Usage]]:
    """Ask the scheduler for the usage of jobs, and record that of jobs which ended long enough ago."""
    records = RunRecords(run)
    if records.scheduler is None or not records.queued or records.plan.sharing:
        return  # the scheduler counts what all members of a shared job use
    queue = records.scheduler.queue()
    if queue.elsewhere(records.clusters):
        return
    jobs = {attempt.job for attempts in records.attempts.values() for attempt in attempts if attempt.job}
    reported = queue.usage(jobs)
    for start in wanted:
        usage = _matching(start, records, reported)
        if usage is None:
            continue
        if start.is_over and _has_settled(start, queue):
            with contextlib.suppress(OSError, CastoffError):  # ask again later
                run.write(f"attempts/{start.member}.{start.last.attempt}/{USAGE}", usage)
        yield start, usage


def _matching(start: Start, records: RunRecords, reported: Iterable[JobUsage]) -> Usage | None:
    """The usage of a start: that of the same job with the nearest start time."""
    numbers = {job.number: job.job for job in records.attempts.get(start.member, [])}
    key = records.key(start.member, numbers.get(start.attempts[0].attempt))
    if key is None or start.began is None:
        return None
    near = {
        abs(job.start - start.began): job.usage
        for job in reported
        if (job.job, job.task) == key and job.start is not None
    }
    nearest = min(near, default=None)
    return None if nearest is None or nearest > _CLOCKS else near[nearest]


def _has_settled(start: Start, queue: Queue) -> bool:
    ended = start.last.ended
    return ended is not None and time.time() - ended > queue.lag + _CLOCKS
