"""Curves to draw: which metrics share a plot, and a few points that show each curve's shape. Pure."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from castoff.launcher.history.metrics import Metrics, Point
from castoff.launcher.report.results import Column, Values, columns, summarised

POINTS = 100_000
"""The maximum number of points that all curves of a page have together: about two megabytes."""

_FEWEST, _MOST = 200, 2_000
"""The minimum and maximum number of points of a curve; screens have no more columns."""

DRAWN_METRICS = 25
"""The maximum number of metrics of which the curves of several members are drawn: so that each curve has
enough points.
"""

_IN_A_PLOT = 8
"""The maximum number of curves in a plot: as many as colours can distinguish."""

_PARTS = ("val", "valid", "validation", "eval", "dev", "test", "train", "training", "train_epoch")
"""Parts of the data, as prefixes of metrics: the same metric of several parts shares a plot."""

_PART = re.compile(rf"({'|'.join(sorted(_PARTS, key=len, reverse=True))})[/_.-](.+)", re.DOTALL)


class Curve(NamedTuple):
    """A line to draw."""

    label: str
    points: Sequence[Point]
    values: Values
    """A summary of all values."""
    thinned: bool
    """Whether some of the values are not in `points`."""
    restarts: Sequence[float] = ()
    """The first steps of later attempts."""

    @property
    def marks(self) -> list[int]:
        """The index of the first point of each later attempt."""
        steps = [point.step for point in self.points]
        found = (bisect_left(steps, step) for step in self.restarts)
        return [*dict.fromkeys(index for index in found if index < len(steps))]


class Plot(NamedTuple):
    """Curves with the same axis, of steps or of another unit."""

    title: str
    curves: Sequence[Curve]
    metric: str = ""
    """The metric of all curves, which belong to several members; empty: each has its own metric."""
    axis: str = "step"
    """The unit of the axis."""


def plots(metrics: Metrics) -> list[Plot]:
    """A member's metrics as plots, in the order of their interest: losses first, then metrics
    of validation.
    """
    finite = {name: column for name, column in columns(metrics).items() if column.finite.values}
    limit = points_of_each(len(finite))
    return [
        Plot(title, [curve(name, finite[name], limit, metrics.restarts) for name in names])
        for title, names in grouped(finite)
    ]


def plots_of_several(members: Iterable[tuple[str, Metrics]], names: Sequence[str], limit: int) -> list[Plot]:
    """A plot for each of these metrics, with the curves of all members, which are taken one at a time, each
    with its label. `limit`: the number of points of each curve.
    """
    curves: dict[str, list[Curve]] = {name: [] for name in names}
    for label, metrics in members:
        found = columns(metrics)
        for name in names:
            if (column := found.get(name)) is not None and column.finite.values:
                curves[name].append(curve(label, column, limit, metrics.restarts))
    return [Plot(name, some, name) for name, some in curves.items() if some]


def by_interest(names: Iterable[str], first: str) -> list[str]:
    """Metrics in the order in which their plots are shown, after `first`."""
    return [first, *(name for _, some in grouped(names) for name in some if name != first)]


def curve(label: str, column: Column, limit: int, restarts: Sequence[float] = ()) -> Curve:
    """Draw a curve through the finite values, with at most about `limit` points."""
    good = column.finite
    shown = thin(good, limit)
    return Curve(label, shown, summarised(column), len(shown) < good.number, restarts)


def points_of_each(curves: int) -> int:
    """The number of points that each curve may have."""
    return max(_FEWEST, min(_MOST, POINTS // max(curves, 1)))


def thin(column: Column, limit: int) -> list[Point]:
    """The smallest and the largest value in each of `limit // 2` equally long stretches, and the ends.

    No peak is lost thereby.
    """
    steps, values, _ = column
    last = len(values) - 1
    if last < limit:
        return [*map(Point, steps, values)]
    size = math.ceil(len(values) / max(limit // 2, 1))
    kept = {0, last}
    for begin in range(0, len(values), size):
        part = values[begin : begin + size]
        kept |= {begin + part.index(min(part)), begin + part.index(max(part))}
    return [Point(steps[index], values[index]) for index in sorted(kept)]


def grouped(names: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Group metrics into plots, each with its title.

    Metrics of several parts of the data share a plot, as `train/loss` and `val/loss`, and so do metrics with
    the same other prefix, as `gradients/first` and `gradients/last`.
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_title(name), []).append(name)
    ordered = sorted(groups.items(), key=lambda group: _order(*group))
    return [
        (title if first == 0 else f"{title} ({first // _IN_A_PLOT + 1})", part[first : first + _IN_A_PLOT])
        for title, metrics in ordered
        for part in [sorted(metrics, key=_part_order)]
        for first in range(0, len(part), _IN_A_PLOT)
    ]


def _title(name: str) -> str:
    part = _PART.fullmatch(name)
    base = part[2] if part else name
    prefix, _, _ = base.rpartition("/")
    return prefix or base


def _order(title: str, names: Sequence[str]) -> int:
    """The sort key of a plot: losses, metrics of validation, metrics of other parts of the data, the rest."""
    of_data = [part[1] for name in names if (part := _PART.fullmatch(name))]
    if title == "loss":
        return 0
    if any(part in _PARTS[:5] for part in of_data):
        return 1
    return 2 if of_data else 3


def _part_order(name: str) -> int:
    part = _PART.fullmatch(name)
    return _PARTS.index(part[1]) if part else 0
