"""Shows a run in a notebook: its state, files and curves, as HTML without scripts. Pure."""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from urllib.parse import quote

import msgspec

from castoff.launcher.history.listing import site_words, words_of_status
from castoff.launcher.history.metrics import Metrics, Point, finite
from castoff.launcher.runs.states import MemberStatus, RunStatus, failed_because
from castoff.launcher.text.svg import document, line, rect, text
from castoff.launcher.text.words import brief, moment

_COLOURS = {
    "done": "#1a7f37",
    **dict.fromkeys(("running", "pending"), "#0969da"),
    **dict.fromkeys(("failed", "out-of-memory", "node-failure"), "#cf222e"),
}
"""The colours of states; others are grey. All contrast with light and dark pages."""

_CURVES = 6
_POINTS = 500
"""The maximum number of points of a curve; the picture is too narrow to show more."""

_WIDTH, _HEIGHT, _SIDE, _TOP, _BOTTOM = 300, 150, 14, 34, 24


def run_html(now: RunStatus, metrics: Sequence[Metrics], *, at: float, folder: Path) -> str:
    """Format a run for a notebook.

    `metrics`: those of the members whose curves are drawn; `at`: the current time, in seconds since the
    epoch; `folder`: the working directory; files below it are shown as links.
    """
    words = words_of_status(now, metrics, at)
    began = [attempt.started for member in now.members for attempt in member.attempts if attempt.started]
    facts = [
        ("site", site_words(now)),
        ("submitted", f"{moment(now.submitted)}, {brief(at - now.submitted)} ago" if now.submitted else ""),
        ("began", moment(min(began)) if began else ""),
        ("members" if words.members else "progress", words.progress),
        ("why", words.why),
    ]
    rows = "".join(_row(name, escape(fact)) for name, fact in facts if fact)
    rows += _row("files", _links(now, folder))
    mark = f'<span style="color:{_COLOURS.get(words.state, "#6e7781")}">●</span> {escape(words.state)}'
    pictures = "".join(
        _picture(metric.curve(name), name) for metric in metrics[:1] for name in _chosen(metric)
    )
    return (
        f'<div><p style="margin:0.4em 0"><strong>{escape(now.id)}</strong> {mark}</p>'
        f'<table style="margin:0;text-align:left"><tbody>{rows}</tbody></table>{pictures}</div>'
    )


def status_line(now: RunStatus, metrics: Sequence[Metrics], *, at: float) -> str:
    """A run's state and progress in one line, for a person who waits for it."""
    words = words_of_status(now, metrics, at)
    reason = words.why if now.state == "pending" else ""
    return f"{now.id}: {', '.join(filter(None, (words.state, words.progress, reason)))}"


def _row(name: str, content: str) -> str:
    style = 'style="text-align:left;vertical-align:top;padding:0 1em 0 0"'
    return f'<tr><th scope="row" {style}>{name}</th><td {style}>{content}</td></tr>'


def _links(now: RunStatus, folder: Path) -> str:
    """The run directory and its logs, as links if below `folder`, which the notebook server serves."""
    last = [member.attempts[-1].logs for member in now.members[:1] if member.attempts]
    return "<br>".join(_link(Path(path), folder) for path in [now.directory, *last])


def _link(path: Path, folder: Path) -> str:
    shown = escape(os.path.relpath(path, folder) if path.is_relative_to(folder) else str(path))
    if not path.is_relative_to(folder):
        return f"<code>{shown}</code>"
    return f'<a href="{escape(quote(os.path.relpath(path, folder)))}"><code>{shown}</code></a>'


def _chosen(metrics: Metrics) -> list[str]:
    """The metrics whose curves are drawn: losses first."""
    curved = [name for name in metrics.names if len(finite(metrics.curve(name))) > 1]
    return sorted(curved, key=lambda name: "loss" not in name.lower())[:_CURVES]


def _picture(points: Sequence[Point], name: str) -> str:
    """A curve as a separate picture, so that its style does not affect the notebook."""
    drawn = base64.b64encode(curve_svg(points, name).encode()).decode()
    words = f"{name} over steps: {points[0].value:.4g} to {points[-1].value:.4g}"
    return (
        f'<img alt="{escape(words)}" src="data:image/svg+xml;base64,{drawn}" style="margin:0.4em 0.4em 0 0">'
    )


def curve_svg(points: Sequence[Point], name: str) -> str:
    """Draw the finite values of a metric over the steps, with their range, and the last value."""
    drawn = finite(points)
    shown = _thinned(drawn)
    low, high = min(point.value for point in drawn), max(point.value for point in drawn)
    first, last = points[0].step, points[-1].step
    wide, tall = _WIDTH - 2 * _SIDE, _HEIGHT - _TOP - _BOTTOM

    def position(point: Point) -> tuple[float, float]:
        across = (point.step - first) / ((last - first) or 1)
        up = (point.value - low) / (high - low) if high > low else 0.5
        return round(_SIDE + across * wide, 1), round(_TOP + (1 - up) * tall, 1)

    foot = _HEIGHT - 8
    parts = [
        text(_SIDE, 22, name),
        text(_WIDTH - _SIDE, 22, f"{points[-1].value:.4g}", "", "end"),
        rect(_SIDE, _TOP, wide, tall, kind="box"),
        line(*(position(point) for point in shown), kind="curve"),
        text(_SIDE, foot, f"step {first:,.0f}", "small"),
        text(_WIDTH / 2, foot, f"{low:.4g} to {high:.4g}", "small", "middle"),
        text(_WIDTH - _SIDE, foot, f"{last:,.0f}", "small", "end"),
    ]
    return document(_WIDTH, _HEIGHT, f"{name} over steps", parts)


def _thinned(points: Sequence[Point]) -> Iterable[Point]:
    """The lowest and highest point of each stretch, as many as the picture can show, and the last point."""
    if len(points) <= _POINTS:
        return points
    size = math.ceil(2 * len(points) / _POINTS)
    kept: list[Point] = []
    for begin in range(0, len(points), size):
        stretch = points[begin : begin + size]
        ends = {min(stretch, key=lambda point: point.value), max(stretch, key=lambda point: point.value)}
        kept += sorted(ends)
    return [*kept, points[-1]]


def of_member(now: RunStatus, number: int) -> RunStatus:
    """The status of a run, limited to one of its members."""
    members = [member for member in now.members if member.member == number]
    state, ending = (members[0].state, members[0].ending) if members else (now.state, now.ending)
    reason = now.reason
    if members and len(now.members) > 1:
        reason = members[0].reason or failed_because(members, ending)
    return msgspec.structs.replace(now, members=members, state=state, ending=ending, reason=reason)


def drawn_members(members: Sequence[MemberStatus]) -> list[int]:
    """The members whose metrics are read: the only member; of an array none, since it may have thousands."""
    return [members[0].member] if len(members) == 1 else []
