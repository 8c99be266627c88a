"""Axes of figures: where a value lies between 0 and 1, and which values are labelled. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from castoff.launcher.report.ranking import value_words

_LOGARITHMIC = 50.0
"""Positive values whose largest is this many times the smallest get a logarithmic axis."""

_LABELS = 6
"""The maximum number of labels of an axis."""


class Label(NamedTuple):
    """A labelled value."""

    at: float
    words: str


class Axis(NamedTuple):
    """An axis of numbers, or of names at equal distances."""

    name: str
    place: Callable[[Any], float | None]
    """Where a value lies, from 0 to 1; None: nowhere."""
    labels: Sequence[Label]


def axis(name: str, values: Iterable[Any]) -> Axis:
    """The axis for these values: of numbers if all are, else of their words in order."""
    known = [value for value in values if value is not None]
    numbers = [number(value) for value in known]
    if numbers and None not in numbers:
        return _of_numbers(name, sorted({one for one in numbers if one is not None}))
    return _of_names(name, sorted({value_words(value) for value in known}))


def number(value: Any) -> float | None:
    """A finite number; None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _of_names(name: str, names: Sequence[str]) -> Axis:
    places = {words: _middle(index, len(names)) for index, words in enumerate(names)}
    every = math.ceil(len(names) / (2 * _LABELS)) or 1
    labels = [Label(places[words], words) for words in names[::every]]
    return Axis(name, lambda value: None if value is None else places.get(value_words(value)), labels)


def _middle(index: int, number: int) -> float:
    return 0.5 if number == 1 else index / (number - 1)


def _of_numbers(name: str, values: Sequence[float]) -> Axis:
    """`values`: different ones, in order."""
    first, last = values[0], values[-1]
    is_logarithmic = first > 0 and last / first >= _LOGARITHMIC
    scale: Callable[[float], float] = math.log if is_logarithmic else lambda value: value / 2
    begin, end = scale(first), scale(last)  # halves, since the difference of two floats may be infinite

    def place(value: Any) -> float | None:
        at = number(value)
        if at is None or not first <= at <= last:
            return None
        return (scale(at) - begin) / (end - begin) if end > begin else 0.5

    labelled = values if len(values) <= _LABELS else [*(_powers if is_logarithmic else _round)(first, last)]
    return Axis(name, place, _apart([Label(place(value) or 0.0, value_words(value)) for value in labelled]))


def _round(first: float, last: float) -> Iterable[float]:
    """Round numbers at equal distances."""
    distance = last / (_LABELS - 1) - first / (_LABELS - 1)
    size = 10.0 ** math.floor(math.log10(distance)) if 0 < distance < math.inf else 0.0
    step = next((size * some for some in (1, 2, 5, 10) if size * some >= distance), 0.0)
    if not 0 < step < math.inf or abs(first) / step > 1e12:
        return [first, last]
    begin = math.ceil(first / step)
    return [count * step for count in range(begin, begin + _LABELS + 1) if first <= count * step <= last]


def _powers(first: float, last: float) -> Iterable[float]:
    """Powers of ten; the ends if there are not two."""
    low, high = math.ceil(math.log10(first)), math.floor(math.log10(last))
    every = max(math.ceil((high - low + 1) / _LABELS), 1)
    powers = [10.0**power for power in range(low, high + 1, every)]
    found = [power for power in powers if first <= power <= last]
    return found if len(found) > 1 else [first, last]


def _apart(labels: Sequence[Label]) -> list[Label]:
    """Leave out labels that would cover the label before."""
    kept: list[Label] = []
    for label in labels:
        if not kept or label.at - kept[-1].at >= 0.5 / _LABELS:
            kept.append(label)
    return kept
