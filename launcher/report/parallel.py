"""Parallel coordinates: an axis for each parameter and one for the metric, and a line for each member, as
SVG. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from castoff.launcher.report.axes import Axis
from castoff.launcher.report.cells import visible
from castoff.launcher.text.shortened import cut

_BETWEEN, _SIDE = 160, 80
_HEIGHT, _TOP, _BOTTOM = 260, 40, 240

_LETTERS = 16
"""The maximum number of letters of a name or a label, which share the space between two axes."""

GOOD, MIDDLE, POOR = "good", "middle", "poor"
"""Thirds of the members."""


class Line(NamedTuple):
    """A member with its places on the axes, from 0 to 1."""

    places: Sequence[float]
    kind: str
    words: str
    """What is shown under the pointer."""
    is_best: bool = False


def parallel(axes: Sequence[Axis], lines: Sequence[Line], words: str) -> Markup:
    """The figure; later lines cover earlier ones. `words`: the text for people who cannot see it."""
    width = 2 * _SIDE + _BETWEEN * (len(axes) - 1)
    parts = [
        Markup(
            '<svg class="parallel" width="{0}" height="{1}" viewBox="0 0 {0} {1}" role="img"'
            ' aria-label="{2}">'
        ).format(width, _HEIGHT, visible(words)),
        *map(_line, lines),
        *(_axis(axis, _x(number)) for number, axis in enumerate(axes)),
        Markup("</svg>"),
    ]
    return Markup("").join(parts)


def _x(number: int) -> int:
    return _SIDE + number * _BETWEEN


def _y(at: float) -> float:
    return round(_BOTTOM - at * (_BOTTOM - _TOP), 1)


def _line(line: Line) -> Markup:
    points = " ".join(f"{_x(number)},{_y(at)}" for number, at in enumerate(line.places))
    kind = f"{line.kind} best" if line.is_best else line.kind
    return Markup('<polyline class="{}" points="{}"><title>{}</title></polyline>').format(
        kind, points, visible(line.words)
    )


def _axis(axis: Axis, x: int) -> Markup:
    labels = (
        Markup('<text x="{}" y="{}" text-anchor="end">{}</text>').format(
            x - 5, _y(label.at) + 4, visible(cut(label.words, _LETTERS))
        )
        for label in axis.labels
    )
    return (
        Markup('<path class="frame" d="M{} {}V{}"/>').format(x, _TOP, _BOTTOM)
        + Markup('<text class="name" x="{}" y="{}" text-anchor="middle">{}</text>').format(
            x, _TOP - 18, visible(cut(axis.name, _LETTERS))
        )
        + Markup("").join(labels)
    )
