"""When attempts waited, started and ran, as bars between 0 and 1000. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from castoff.launcher.history.attempts import QUEUED, RUNNING, SETUP, START_UP, Phase
from castoff.launcher.text.words import brief

ORDER = (QUEUED, SETUP, START_UP, RUNNING)

MARK = "mark"
"""What a bar between two attempts is."""

WIDTH = 1000.0

_MARKED = 30
"""Marks that a line can hold without hiding what it shows."""

_BINS = 125
"""Columns of a census."""


class Bar(NamedTuple):
    """A part of a line; `y` and `height` are of the line's own, 0 to 100."""

    kind: str
    x: float
    width: float
    y: float = 0.0
    height: float = 100.0


class Span(NamedTuple):
    """From when to when a timeline is, in seconds since the epoch."""

    begin: float
    end: float


def span(some: Iterable[Sequence[Phase]], at: float) -> Span | None:
    """The time of all phases; `at`: now, for those that last. None: there are none."""
    found = [one for each in some for one in each]
    if not found:
        return None
    begin = min(one.start for one in found)
    end = max(at if one.end is None else one.end for one in found)
    return Span(begin, max(end, begin + 1.0))


def bars(some: Sequence[Phase], whole: Span, at: float) -> list[Bar]:
    """Phases as bars of one line, each wide enough to be seen, and a mark where a few attempts begin."""
    scale = WIDTH / (whole.end - whole.begin)
    found: list[Bar] = []
    marks: list[Bar] = []
    place = -1
    for one in some:
        begin = round(min((one.start - whole.begin) * scale, WIDTH - 1.0), 1)
        if ORDER.index(one.name) <= place:
            marks.append(Bar(MARK, begin, 2.0))
        place = ORDER.index(one.name)
        if one.seconds(at) > 0:
            found.append(Bar(one.name, begin, round(max(one.seconds(at) * scale, 1.0), 1)))
    return [*found, *(marks if len(marks) <= _MARKED else ())]


def census(some: Sequence[Sequence[Phase]], whole: Span, at: float) -> tuple[list[Bar], int]:
    """How many members were in each phase over the time, as stacked bars; and the most at a time."""
    width = (whole.end - whole.begin) / _BINS
    counts = [dict.fromkeys(ORDER, 0) for _ in range(_BINS)]
    for one in (one for each in some for one in each):
        end = at if one.end is None else one.end
        first = int((one.start - whole.begin) / width)
        for column in range(max(first, 0), _BINS):
            middle = whole.begin + (column + 0.5) * width
            if middle >= end:
                break
            if middle >= one.start:
                counts[column][one.name] += 1
    most = max(sum(count.values()) for count in counts)
    found = []
    for column, held in enumerate(counts):
        top = 100.0
        for kind in reversed(ORDER):
            height = held[kind] * 100.0 / max(most, 1)
            top -= height
            if height:
                found.append(
                    Bar(kind, column * WIDTH / _BINS, WIDTH / _BINS, round(top, 2), round(height, 2))
                )
    return found, most


def sums(some: Iterable[Sequence[Phase]], at: float) -> dict[str, float]:
    """The seconds of each phase, of all attempts together; those that never took any are left out."""
    found = dict.fromkeys(ORDER, 0.0)
    for one in (one for each in some for one in each):
        found[one.name] += one.seconds(at)
    return {name: seconds for name, seconds in found.items() if seconds}


def words(some: Sequence[Phase], at: float) -> str:
    """Phases in words: `queued 3m, setup 5s, running 2h05m so far`."""
    return ", ".join(
        f"{one.name} {brief(one.seconds(at))}{' so far' if one.end is None else ''}" for one in some
    )
