"""A metric over a parameter, one dot for each member, as SVG. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from markupsafe import Markup

from castoff.launcher.report.axes import Axis, Label
from castoff.launcher.report.cells import visible
from castoff.launcher.text.shortened import cut

_WIDTH, _HEIGHT = 360, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 348, 12, 186

_LETTERS = 11
"""The maximum number of letters of a label."""

DONE, FAILED, OPEN = "done", "failed", "open"
"""Members that ended well, that failed, and others. Each is drawn in its own form, not only its colour."""

_FORMS = {
    DONE: '<circle class="dot" cx="{x}" cy="{y}" r="3.5">',
    FAILED: '<path class="cross" d="M{x} {y}m-3.5 -3.5l7 7m0 -7l-7 7">',
    OPEN: '<circle class="ring" cx="{x}" cy="{y}" r="3.5">',
}
_ENDS = {DONE: "</circle>", FAILED: "</path>", OPEN: "</circle>"}


class Dot(NamedTuple):
    """A member with its values on both axes, from 0 to 1."""

    x: float
    y: float
    kind: str
    words: str
    """What is shown under the pointer."""
    is_best: bool = False


def scatter(across: Axis, up: Axis, dots: Sequence[Dot], words: str) -> Markup:
    """The figure; `words`: the text for people who cannot see it."""
    parts = [
        Markup('<svg class="scatter" viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
            _WIDTH, _HEIGHT, visible(words)
        ),
        *(_label_below(label) for label in across.labels),
        *(_label_beside(label) for label in up.labels),
        Markup('<path class="frame" d="M{0} {2}V{3}H{1}"/>').format(_LEFT, _RIGHT, _TOP, _BOTTOM),
        Markup('<text class="name" x="{}" y="{}" text-anchor="middle">{}</text>').format(
            (_LEFT + _RIGHT) / 2, _HEIGHT - 8, visible(cut(across.name, 40))
        ),
        *(_dot(dot) for dot in dots),
        Markup("</svg>"),
    ]
    return Markup("").join(parts)


def _x(at: float) -> float:
    return round(_LEFT + 10 + at * (_RIGHT - _LEFT - 20), 1)


def _y(at: float) -> float:
    return round(_BOTTOM - 10 - at * (_BOTTOM - _TOP - 20), 1)


def _label_below(label: Label) -> Markup:
    return Markup(
        '<path class="grid" d="M{0} {1}V{2}"/><text x="{0}" y="{3}" text-anchor="middle">{4}</text>'
    ).format(_x(label.at), _TOP, _BOTTOM, _BOTTOM + 15, visible(cut(label.words, _LETTERS)))


def _label_beside(label: Label) -> Markup:
    return Markup(
        '<path class="grid" d="M{0} {1}H{2}"/><text x="{3}" y="{4}" text-anchor="end">{5}</text>'
    ).format(
        _LEFT, _y(label.at), _RIGHT, _LEFT - 6, _y(label.at) + 4, visible(cut(label.words, _LETTERS - 1))
    )


def _dot(dot: Dot) -> Markup:
    x, y = _x(dot.x), _y(dot.y)
    form = Markup(_FORMS[dot.kind]).format(x=x, y=y)
    title = Markup("<title>{}</title>").format(visible(dot.words))
    best = Markup('<circle class="best" cx="{}" cy="{}" r="7"/>').format(x, y) if dot.is_best else ""
    return form + title + Markup(_ENDS[dot.kind]) + best
