"""Curves to draw: which metrics share a plot, and as few points of each as show its shape. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from castoff.launcher.history.metrics import Metrics, Point
from castoff.launcher.report.results import Column, Values, columns, summarised

POINTS = 100_000
"""Of all curves of a page together: about two megabytes."""

_FEWEST, _MOST = 200, 2_000
"""Points of a curve; a screen has no more columns than these."""

_IN_A_PLOT = 8
"""Curves that colours can distinguish."""

_PARTS = ("val", "valid", "validation", "eval", "dev", "test", "train", "training", "train_epoch")
"""Parts of the data: the same measure of two of them belongs into one plot. Those of validation lead."""

_PART = re.compile(rf"({'|'.join(sorted(_PARTS, key=len, reverse=True))})[/_.-](.+)", re.DOTALL)


class Curve(NamedTuple):
    """A line to draw."""

    label: str
    points: Sequence[Point]
    values: Values
    """In brief, of all values."""
    thinned: bool
    """Whether `points` are fewer than there are."""


class Plot(NamedTuple):
    """Curves over the same step."""

    title: str
    curves: Sequence[Curve]


def plots(metrics: Metrics) -> list[Plot]:
    """A member's metrics as plots, in the order in which people look at them: losses of validation first."""
    found = {name: column for name, column in columns(metrics).items() if column.finite.values}
    limit = points_of_each(len(found))
    return [
        Plot(title, [curve(name, found[name], limit) for name in names]) for title, names in grouped(found)
    ]


def curve(label: str, column: Column, limit: int) -> Curve:
    """A line with at most about `limit` points, through the finite values."""
    good = column.finite
    shown = thin(good, limit)
    return Curve(label, shown, summarised(column), len(shown) < len(good.values))


def points_of_each(curves: int) -> int:
    """How many points each of so many curves may have."""
    return max(_FEWEST, min(_MOST, POINTS // max(curves, 1)))


def thin(column: Column, limit: int) -> list[Point]:
    """The smallest and the largest value of each of `limit // 2` stretches of a curve, and its ends.

    So no peak is lost. The stretches have as many points each.
    """
    steps, values = column
    last = len(values) - 1
    if last < limit:
        return [*map(Point, steps, values)]
    size = math.ceil(len(values) / max(limit // 2, 1))
    kept = {0, last}
    for begin in range(0, len(values), size):
        part = values[begin : begin + size]
        kept |= {begin + part.index(min(part)), begin + part.index(max(part))}
    return [Point(steps[at], values[at]) for at in sorted(kept)]


def grouped(names: Iterable[str]) -> list[tuple[str, list[str]]]:
    """Which metrics share a plot, and its title.

    `train/loss` and `val/loss` share one, since both are losses; of the other names with a part before a
    slash, those whose part is no part of the data, as `gradients/first` and `gradients/last`.
    """
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_title(name), []).append(name)
    found = sorted(groups.items(), key=lambda group: _order(*group))
    return [
        (title if at == 0 else f"{title} ({at // _IN_A_PLOT + 1})", part[at : at + _IN_A_PLOT])
        for title, some in found
        for part in [sorted(some, key=_part_order)]
        for at in range(0, len(part), _IN_A_PLOT)
    ]


def _title(name: str) -> str:
    part = _PART.fullmatch(name)
    own = part[2] if part else name
    prefix, _, _ = own.rpartition("/")
    return prefix or own


def _order(title: str, names: Sequence[str]) -> int:
    """Losses first, then what is known of validation, then the rest; each in its own order."""
    of_data = [part[1] for name in names if (part := _PART.fullmatch(name))]
    if title == "loss":
        return 0
    if any(part in _PARTS[:5] for part in of_data):
        return 1
    return 2 if of_data else 3


def _part_order(name: str) -> int:
    part = _PART.fullmatch(name)
    return _PARTS.index(part[1]) if part else 0
