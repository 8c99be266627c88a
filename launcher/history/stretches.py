"""Many reports in little memory: a stretch of consecutive reports keeps a few values of each metric. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_POINTS = 4
"""The maximum number of points that a stretch keeps of a metric: the first, smallest, largest and last."""

Pair = tuple[float, float]
"""A step and a value."""


class Part(NamedTuple):
    """The values of one metric in a stretch of reports."""

    number: int
    """The number of all values."""
    points: tuple[Pair, ...]
    """Finite values in order: the first, the smallest, the largest and the last; all, if they are at most
    four.
    """
    total: float
    """The sum of the finite values."""
    last: Pair
    """The last value, which may not be finite."""
    odd: int = 0
    """The number of values that are not finite."""
    first_odd: Pair | None = None

    @property
    def middle(self) -> float:
        """The step in the middle of the finite values, of which there must be some."""
        return (self.points[0][0] + self.points[-1][0]) / 2

    @property
    def mean(self) -> float:
        """The mean of the finite values, of which there must be some."""
        mean = self.total / (self.number - self.odd)
        return mean if math.isfinite(mean) else sum(value / len(self.points) for _, value in self.points)

    def best(self, *, largest: bool) -> Pair | None:
        """The smallest or largest finite value with its step, the earliest if several are equal; None if no
        value is finite.
        """
        return (max if largest else min)(self.points, key=lambda point: point[1], default=None)


class Source(NamedTuple):
    """Where lines begin, and what is needed to read them again."""

    file: Path
    start: int
    """The offset of the first line."""
    line: int
    """The number of the first line."""
    state: Any
    """The reader's state before this line."""


class Stretch(NamedTuple):
    """Consecutive reports of one file."""

    source: Source
    """Where the first report's line is, or lines before it."""
    reports: int
    """The number of reports."""
    lines: tuple[int, int]
    """The numbers of the first and the last report's line."""
    steps: tuple[float, float]
    """The first and the last step."""
    times: tuple[float, float] | None
    """The first and the last time, in seconds since the epoch; None if there is none."""
    parts: dict[str, Part]
    """By metric, in the order of their first appearance."""


def part_of(steps: Sequence[float], values: Sequence[float | None]) -> Part | None:
    """Summarise the values of a metric by step, of which reports without this metric have None; None if
    there are none.
    """
    try:
        low, high, total = min(values), max(values), sum(values)  # type: ignore[type-var, arg-type]
        is_plain = math.isfinite(total)
    except (TypeError, ValueError):  # some reports lack this metric, or all do
        is_plain = False
    if not is_plain:
        pairs = zip(steps, values, strict=True)
        return _picked([(step, value) for step, value in pairs if value is not None])
    last = len(values) - 1
    kept = range(last + 1) if last < _POINTS else sorted({0, values.index(low), values.index(high), last})
    points = tuple([(steps[index], values[index]) for index in kept])
    return Part(last + 1, points, total, points[-1])  # type: ignore[arg-type]


def _picked(pairs: Sequence[Pair]) -> Part | None:
    """The same for values that may not be finite."""
    if not pairs:
        return None
    good = [pair for pair in pairs if math.isfinite(pair[1])]
    return Part(
        number=len(pairs),
        points=_few(good),
        total=sum(value for _, value in good),
        last=pairs[-1],
        odd=len(pairs) - len(good),
        first_odd=next((pair for pair in pairs if not math.isfinite(pair[1])), None),
    )


def _few(points: Sequence[Pair]) -> tuple[Pair, ...]:
    if len(points) <= _POINTS:
        return tuple(points)
    values = [value for _, value in points]
    kept = {0, values.index(min(values)), values.index(max(values)), len(points) - 1}
    return tuple([points[index] for index in sorted(kept)])


def joined_parts(one: Part, other: Part) -> Part:
    """Join the values of a metric in a stretch and in the one after it."""
    return Part(
        one.number + other.number,
        _few(one.points + other.points),
        one.total + other.total,
        other.last,
        one.odd + other.odd,
        one.first_odd or other.first_odd,
    )


def joined(one: Stretch, other: Stretch) -> Stretch:
    """Join a stretch and the one after it, which is of the same file."""
    parts = dict(one.parts)
    for name, part in other.parts.items():
        before = parts.get(name)
        parts[name] = part if before is None else joined_parts(before, part)
    return Stretch(
        one.source,
        one.reports + other.reports,
        (one.lines[0], other.lines[1]),
        (one.steps[0], other.steps[1]),
        (one.times[0], other.times[1]) if one.times and other.times else one.times or other.times,
        parts,
    )


def widened(stretches: Iterable[Stretch], width: int) -> list[Stretch]:
    """Join neighbours to stretches of at most `width` reports."""
    wide: list[Stretch] = []
    for one in stretches:
        if wide and wide[-1].source.file == one.source.file and wide[-1].reports + one.reports <= width:
            wide[-1] = joined(wide[-1], one)
        else:
            wide.append(one)
    return wide
