"""When attempts waited, started and ran, as bars between 0 and `WIDTH`. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from castoff.launcher.history.attempts import QUEUED, RUNNING, SETUP, START_UP, Phase
from castoff.launcher.text.words import brief

PHASES = (QUEUED, SETUP, START_UP, RUNNING)

FAILED = "failed"
"""The kind of the last phase of an attempt that failed."""

ORDER = (*PHASES, FAILED)

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


def marked_failed(some: Sequence[Phase]) -> list[Phase]:
    """The phases of an attempt that failed: the last is FAILED, if the attempt began."""
    if not some or some[-1].name == QUEUED:
        return [*some]
    return [*some[:-1], some[-1]._replace(name=FAILED)]


def census(some: Sequence[Sequence[Phase]], whole: Span, at: float) -> list[Bar]:
    """The number of members in each phase over time, as stacked bars."""
    width = (whole.end - whole.begin) / _BINS
    changes = {kind: [0] * (_BINS + 1) for kind in ORDER}
    for phase in (phase for member in some for phase in member):
        # A phase counts in the columns whose middle it covers.
        first, end = (
            min(max(math.ceil((moment - whole.begin) / width - 0.5), 0), _BINS)
            for moment in (phase.start, at if phase.end is None else phase.end)
        )
        if first < end:
            changes[phase.name][first] += 1
            changes[phase.name][end] -= 1
    counts = [[*itertools.accumulate(changes[kind][:_BINS])] for kind in ORDER]
    most = max(map(sum, zip(*counts, strict=True)))
    stacked = []
    for column, numbers in enumerate(zip(*counts, strict=True)):
        top = 100.0
        for kind, number in reversed([*zip(ORDER, numbers, strict=True)]):
            height = number * 100.0 / max(most, 1)
            top -= height
            if height:
                stacked.append(
                    Bar(kind, column * WIDTH / _BINS, WIDTH / _BINS, round(top, 2), round(height, 2))
                )
    return stacked


def most_at_once(some: Iterable[Sequence[Phase]], at: float) -> int:
    """The largest number of members that had begun at a time, and neither waited nor had ended."""
    events: list[tuple[float, int]] = []
    for phase in (phase for member in some for phase in member):
        if phase.name != QUEUED and phase.seconds(at) > 0:
            # At the same moment, what ends comes first: one phase follows the other.
            events += [(phase.start, 1), (at if phase.end is None else phase.end, -1)]
    return max(itertools.accumulate((change for _, change in sorted(events)), initial=0))


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
