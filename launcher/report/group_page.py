"""Renders a group's page: its jobs as a picture and as a table."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence

from castoff.launcher.report.cells import Moments, ended, table
from castoff.launcher.report.page import rendered
from castoff.launcher.status.group_states import GroupStates
from castoff.launcher.status.tree import direct, levels
from castoff.launcher.text.shortened import cut
from castoff.launcher.text.svg import arrow, document, group, rect, text

_MOST = 300
"""The largest number of jobs that are drawn."""

_WIDTH, _HEIGHT, _ACROSS, _DOWN, _MARGIN = 170, 48, 56, 18, 20

_COLOURS = {"done": "#2da44e", "running": "#0969da", "pending": "#8c959f", "not submitted": "#8c959f"}
_OTHER_COLOUR = "#cf222e"

_NAME = 20
"""Characters of a name that fit into a box."""


def group_page(states: GroupStates, at: float, refresh: int | None = None) -> str:
    """A group's page as text. `at`: when its states were read, in seconds since the epoch. `refresh` as in
    `page`.
    """
    direct_waits = direct(states.waits)
    rows = [
        (
            name,
            ", ".join(direct_waits[name]),
            ended(states.word(name)),
            states.took(name, at),
            status.id if status else "",
            states.why(name),
        )
        for name, status in states.statuses.items()
    ]
    return rendered(
        "group.html.j2",
        [],
        refresh,
        group=states.group,
        words=states.words,
        remedy=states.remedy,
        picture=_as_image(states) if len(states.statuses) <= _MOST else "",
        jobs=table("Jobs", ("job", "after", "state", "took", "run", "why"), rows, "took"),
        moments=Moments(at),
        at=at,
    )


def _as_image(states: GroupStates) -> str:
    """The picture as the address of an image."""
    words = {name: states.word(name) for name in states.statuses}
    return "data:image/svg+xml;base64," + base64.b64encode(picture(states.waits, words).encode()).decode()


def picture(waits: Mapping[str, Sequence[str]], words: Mapping[str, str]) -> str:
    """Draw jobs from left to right, as an SVG document. `words`: the state of each job."""
    columns: dict[int, list[str]] = {}
    for name, level in levels(waits).items():
        columns.setdefault(level, []).append(name)
    places = {
        name: (_MARGIN + level * (_WIDTH + _ACROSS), _MARGIN + row * (_HEIGHT + _DOWN))
        for level, names in columns.items()
        for row, name in enumerate(names)
    }
    parts = []
    for name, others in direct(waits).items():
        x, y = places[name]
        for other in others:
            left, top = places[other]
            parts.append(arrow((left + _WIDTH, top + _HEIGHT / 2), (x, y + _HEIGHT / 2)))
    for name, (x, y) in places.items():
        word = words[name]
        box = [
            rect(x, y, _WIDTH, _HEIGHT, kind="box"),
            rect(x, y, 6, _HEIGHT, fill=_COLOURS.get(word, _OTHER_COLOUR)),
            text(x + 16, y + 20, cut(name, _NAME)),
            text(x + 16, y + 37, word, kind="small"),
        ]
        parts.append(group(f"{name}: {word}", box))
    width = max(x for x, _ in places.values()) + _WIDTH + _MARGIN
    height = max(y for _, y in places.values()) + _HEIGHT + _MARGIN
    described = "; ".join(f"{name}: {word}" for name, word in words.items())
    return document(width, height, described, parts)
