"""The progress of a program, its speed and expected end, from its reports. Pure.

Programs may choose the names of their metrics; castoff's trainers write `train/loss` and
`train/samples_per_second`. Metrics are therefore recognised by the ends of their names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from castoff.launcher.history.metrics import Metrics, Point, Report, finite
from castoff.launcher.history.stretches import part_of

_RECENT = 20
"""The number of newest reports from which the pace is computed."""

_COLUMNS = 200
"""The maximum number of values of a curve: a line on a screen has no more columns."""

_LOSSES = (
    r"(?:train(?:ing)?[/._-])?loss",
    r"(?!val|test|eval).*[/._-]loss",
    r".*[/._-]loss",
    r"(?!val|test|eval).*loss.*",
    r".*loss.*",
)
"""Patterns for the name of the training loss, the most likely first."""

_SPEEDS = r"(?:.*[/._-])?((?:samples|images|tokens|items|examples|sequences)_per_sec\w*|throughput)"

_SLOWEST, _LAG = r"(?:.*/)?slowest_rank", r"(?:.*/)?slowest_rank_lag"
_UTILIZATION = r"(?:.*[/._-])?(?:gpu_|device_)?utili[sz]ation"
_DATA_WAIT = r"(?:.*[/._-])?data_wait"
_MEMORY = r"(?:.*[/._-])?(?:gpu_|device_)?memory_gb"


class Metric(NamedTuple):
    """A metric's newest value, which may not be finite."""

    name: str
    value: float


class Progress(NamedTuple):
    """The progress of a member, from its metrics."""

    step: float | None = None
    total: float | None = None
    reported: float | None = None
    """When the newest line was written, in seconds since the epoch."""
    pace: float | None = None
    """Steps per second."""
    loss: Metric | None = None
    curve: Sequence[float] = ()
    """The finite values of the loss over the steps."""
    speed: Metric | None = None
    """Samples per second, or a similar rate."""
    slowest_rank: float | None = None
    slowest_lag: float | None = None
    """How much longer the slowest rank computes than the others, as a fraction of a step."""
    utilization: float | None = None
    """The fraction of the time in which devices computed."""
    memory_gb: float | None = None
    data_wait: float | None = None
    """The fraction of the time in which the program waits for data."""
    others: Sequence[Metric] = ()
    """All other metrics, in the order of their first appearance."""

    @property
    def part(self) -> float | None:
        """The fraction of the steps that is done, from 0 to 1; None: not known."""
        return self.step / self.total if self.step is not None and self.total else None

    @property
    def end(self) -> float | None:
        """When the last step ends at this pace, in seconds since the epoch; None: not known."""
        if self.step is None or self.total is None or self.pace is None or self.reported is None:
            return None
        return self.reported + max(self.total - self.step, 0.0) / self.pace


def progress_of(metrics: Metrics, since: float = 0.0) -> Progress:
    """Compute a member's progress. `since`: the attempt's start; only later reports count for the pace."""
    last = metrics.last
    names = list(last)
    loss = next(filter(None, (_first(names, pattern) for pattern in _LOSSES)), None)
    names_of = {
        field: _first(names, pattern)
        for field, pattern in (
            ("slowest_rank", _SLOWEST),
            ("slowest_lag", _LAG),
            ("utilization", _UTILIZATION),
            ("memory_gb", _MEMORY),
            ("data_wait", _DATA_WAIT),
        )
    }
    speed = _first(names, _SPEEDS)
    shown = {loss, speed, *names_of.values()}
    return Progress(
        step=metrics.step,
        total=metrics.total_steps,
        reported=metrics.time,
        pace=pace(report for report in metrics.reports[-_RECENT:] if (report.time or 0.0) >= since),
        loss=None if loss is None else Metric(loss, last[loss]),
        curve=[] if loss is None else _even(_means(metrics, loss)),
        speed=None if speed is None else Metric(speed, last[speed]),
        **{field: last[name] for field, name in names_of.items() if name is not None},
        others=[Metric(name, last[name]) for name in names if name not in shown],
    )


class _Mean(NamedTuple):
    """The mean of some values of a curve."""

    step: float
    value: float
    number: int = 1
    """The number of values."""


def _means(metrics: Metrics, name: str) -> list[_Mean]:
    """The finite values of a metric; of older reports, their means."""
    older = [
        _Mean(part.middle, part.mean, part.number - part.odd) for part in metrics.parts(name) if part.points
    ]
    newest = (Point(one.step, one.values[name]) for one in metrics.reports if name in one.values)
    return [*older, *(_Mean(*point) for point in finite(newest))]


def _even(means: Sequence[_Mean]) -> list[float]:
    """Average a curve over equal intervals of steps, since older values may be sparser than newer ones."""
    if len(means) <= _COLUMNS:
        return [one.value for one in means]
    first, span = means[0].step, means[-1].step - means[0].step
    parts: list[list[_Mean]] = [[] for _ in range(_COLUMNS)]
    for one in means:
        index = int((one.step - first) / span * _COLUMNS) if span > 0 else 0
        parts[min(max(index, 0), _COLUMNS - 1)].append(one)
    numbers = (sum(one.number for one in part) for part in parts)
    return [
        sum(one.value * (one.number / number) for one in part)
        for part, number in zip(parts, numbers, strict=True)
        if part
    ]


def pace(reports: Iterable[Report]) -> float | None:
    """Steps per second between the first and the last of these reports; None if unknown."""
    timed = [report for report in reports if report.time is not None]
    if len(timed) < 2:
        return None
    steps, seconds = timed[-1].step - timed[0].step, (timed[-1].time or 0.0) - (timed[0].time or 0.0)
    return steps / seconds if steps > 0 and seconds > 0 else None


def device_use(metrics: Metrics, start: float, end: float | None) -> float | None:
    """The mean fraction of time in which devices computed, from the reports between two times.

    Times are in seconds since the epoch; None if nothing was reported. Names such as `gpu_utilization` count.
    """
    return _mean_fraction(metrics, _UTILIZATION, start, end)


def data_wait(metrics: Metrics, start: float, end: float | None = None) -> float | None:
    """The mean fraction of time in which the program waited for data, by metrics such as `data_wait`; as
    `device_use`.
    """
    return _mean_fraction(metrics, _DATA_WAIT, start, end)


def _mean_fraction(metrics: Metrics, pattern: str, start: float, end: float | None) -> float | None:
    """The mean of a metric between two times. If a value is above 1, all are percent. A stretch of older
    reports counts by the middle of its time.
    """
    name = _first(metrics.names, pattern) or ""
    until = math.inf if end is None else end + 1  # scripts record whole seconds
    older = [
        stretch.parts[name]
        for stretch in metrics.older
        if name in stretch.parts and stretch.times and start <= sum(stretch.times) / 2 < until
    ]
    newest = [
        (one.step, one.values[name])
        for one in metrics.reports
        if name in one.values and one.time is not None and start <= one.time < until
    ]
    parts = [part for part in (*older, part_of(*zip(*newest, strict=True)) if newest else None) if part]
    values = [value for part in parts for _, value in part.points]
    if not values or min(values) < 0 or max(values) > 100:
        return None
    mean = sum(part.total for part in parts) / sum(part.number - part.odd for part in parts)
    return mean / (1 if max(values) <= 1 else 100)


class Left(NamedTuple):
    """The time that a running attempt has left."""

    seconds: float
    is_walltime: bool
    """Whether the walltime ends the attempt before its last step."""
    other: float | None
    """Seconds to the walltime or the last step, whichever is later; None if not known or without walltime."""


def time_left(end: float | None, deadline: float | None, now: float) -> Left | None:
    """The time to the end of an attempt, by its last step or its walltime; None if neither is known."""
    ends = sorted(
        (moment, is_walltime)
        for moment, is_walltime in ((end, False), (deadline, True))
        if moment is not None
    )
    if not ends:
        return None
    (first, is_walltime), *later = ends
    return Left(max(first - now, 0.0), is_walltime, max(later[0][0] - now, 0.0) if later else None)


def speed_unit(name: str) -> str:
    """The unit in a metric's name, as `samples/s` of `train/samples_per_second`; else the name itself."""
    match = re.search(r"(\w+?)_per_sec\w*$", re.split(r"[/.-]", name)[-1])
    return f"{match[1].rpartition('_')[2]}/s" if match else name


def _first(names: Sequence[str], pattern: str) -> str | None:
    return next((name for name in names if re.fullmatch(pattern, name, re.IGNORECASE)), None)
