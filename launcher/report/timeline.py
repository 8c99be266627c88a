"""When attempts waited, started and ran, as bars between 0 and `WIDTH`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from castoff.launcher.history.attempts import QUEUED, RUNNING, SETUP, START_UP, Phase
from castoff.launcher.text.words import brief

ORDER = (QUEUED, SETUP, START_UP, RUNNING)

MARK = "mark"
"""The kind of a bar that marks the beginning of another attempt."""

WIDTH = 1000.0

_MARKED = 30
"""The maximum number of marks in a line; more would hide its bars."""

_BINS = 125
"""The number of columns of a census."""


class Bar(NamedTuple):
    """A part of a line; `y` and `height` are percentages of the line's height."""

    kind: str
    x: float
    width: float
    y: float = 0.0
    height: float = 100.0


class Span(NamedTuple):
    """The beginning and end of a timeline, in seconds since the epoch."""

    begin: float
    end: float


def span(some: Iterable[Sequence[Phase]], at: float) -> Span | None:
    """The span of all phases; `at`: the end of phases that have not ended. None without phases."""
    phases = [phase for member in some for phase in member]
    if not phases:
        return None
    begin = min(phase.start for phase in phases)
    end = max(at if phase.end is None else phase.end for phase in phases)
    return Span(begin, max(end, begin + 1.0))


def bars(some: Sequence[Phase], whole: Span, at: float) -> list[Bar]:
    """Phases as bars on one line, each wide enough to be seen; marks show where attempts begin, if only a
    few.
    """
    scale = WIDTH / (whole.end - whole.begin)
    shown: list[Bar] = []
    marks: list[Bar] = []
    index = -1
    for phase in some:
        begin = round(min((phase.start - whole.begin) * scale, WIDTH - 1.0), 1)
        if ORDER.index(phase.name) <= index:
            marks.append(Bar(MARK, begin, 2.0))
        index = ORDER.index(phase.name)
        if phase.seconds(at) > 0:
            shown.append(Bar(phase.name, begin, round(max(phase.seconds(at) * scale, 1.0), 1)))
    return [*shown, *(marks if len(marks) <= _MARKED else ())]


def census(some: Sequence[Sequence[Phase]], whole: Span, at: float) -> tuple[list[Bar], int]:
    """The number of members in each phase over time, as stacked bars, and the largest number at a time."""
    width = (whole.end - whole.begin) / _BINS
    counts = [dict.fromkeys(ORDER, 0) for _ in range(_BINS)]
    for phase in (phase for member in some for phase in member):
        end = at if phase.end is None else phase.end
        first = int((phase.start - whole.begin) / width)
        for column in range(max(first, 0), _BINS):
            middle = whole.begin + (column + 0.5) * width
            if middle >= end:
                break
            if middle >= phase.start:
                counts[column][phase.name] += 1
    most = max(sum(count.values()) for count in counts)
    stacked = []
    for column, numbers in enumerate(counts):
        top = 100.0
        for kind in reversed(ORDER):
            height = numbers[kind] * 100.0 / max(most, 1)
            top -= height
            if height:
                stacked.append(
                    Bar(kind, column * WIDTH / _BINS, WIDTH / _BINS, round(top, 2), round(height, 2))
                )
    return stacked, most


def sums(some: Iterable[Sequence[Phase]], at: float) -> dict[str, float]:
    """The seconds of each phase over all attempts, without phases that took no time."""
    seconds_of = dict.fromkeys(ORDER, 0.0)
    for phase in (phase for member in some for phase in member):
        seconds_of[phase.name] += phase.seconds(at)
    return {name: seconds for name, seconds in seconds_of.items() if seconds}


def words(some: Sequence[Phase], at: float) -> str:
    """Phases in words: `queued 3m, setup 5s, running 2h05m so far`."""
    return ", ".join(
        f"{phase.name} {brief(phase.seconds(at))}{' so far' if phase.end is None else ''}" for phase in some
    )
