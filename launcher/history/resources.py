"""What the jobs of runs used of their nodes: processors, memory and devices.

The scheduler's accounting says so, or castoff's own scheduler, which looks at the processes now and then.
What is known of a job that is over is kept in its run directory: schedulers forget.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator

from castoff.launcher.errors import CastoffError
from castoff.launcher.history.starts import Start, starts
from castoff.launcher.runs.records import Usage, read
from castoff.launcher.runs.run import USAGE, RunDirectory
from castoff.launcher.runs.states import RunStatus
from castoff.launcher.schedulers.base_queue import Queue
from castoff.launcher.schedulers.job_info import JobUsage
from castoff.launcher.status.survey import RunRecords

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
