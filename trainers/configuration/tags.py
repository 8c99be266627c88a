"""YAML tags for several values, such as `!sweep`, or for another field's value, `!reference`.

The tags are QuantumGrav's. Reading one calls nothing and draws nothing: the module `sweep` expands them.
"""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

import math
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from random import Random
from typing import Any, TypeAlias

import msgspec

from castoff.launcher.typed.suggestion import suggestion

FieldPath: TypeAlias = tuple[str | int, ...]
"""A value's place in nested mappings and lists: names, and numbers from 0."""

DEFAULT_SIZE = 5
"""Number of values of a `!random_uniform` without `size`, as in QuantumGrav."""


class Tagged(msgspec.Struct, frozen=True):
    """A tagged YAML node."""

    def __repr__(self) -> str:
        """The tag, for messages."""
        return name_of(self)


class Sweep(Tagged, frozen=True):
    """`!sweep`: each of some values in turn."""

    values: list[Any]
    line: int

    @property
    def size(self) -> int:
        """The number of values."""
        return len(self.values)

    def value(self, index: int, seed: str) -> Any:
        """The value with this index."""
        return self.values[index]


class Range(Tagged, frozen=True):
    """`!range`: values from `start` to `stop`, which is included if a step leads to it exactly."""

    start: int | float
    stop: int | float
    step: int | float
    line: int

    @property
    def size(self) -> int:
        """Number of values; none lies beyond `stop`."""
        return int((_exact(self.stop) - _exact(self.start)) // _exact(self.step)) + 1

    @property
    def whole(self) -> bool:
        """Whether the values are whole numbers."""
        return all(isinstance(each, int) for each in (self.start, self.stop, self.step))

    def value(self, index: int, seed: str) -> int | float:
        """The value with this index, exact in decimals: 0.3, not 0.30000000000000004 as 0.1 + 0.1 + 0.1."""
        exact = _exact(self.start) + index * _exact(self.step)
        return int(exact) if self.whole else float(exact)


class RandomUniform(Tagged, frozen=True):
    """`!random_uniform`: values drawn uniformly between two; with `log`, their logarithms are uniform."""

    start: float
    stop: float
    log: bool
    size: int
    line: int

    def value(self, index: int, seed: str) -> float:
        """The value with this index, the same for the same seed, in six digits, so that logs show the exact
        value.
        """
        share = Random(f"{seed} {index}").random()
        if self.log:
            low, high = math.log(self.start), math.log(self.stop)
            drawn = math.exp(low + share * (high - low))
        else:
            drawn = self.start + share * (self.stop - self.start)
        return min(max(float(f"{drawn:.6g}"), self.start), self.stop)


class CoupledSweep(Tagged, frozen=True):
    """`!coupled-sweep`: takes its value with the same index as a `!sweep`."""

    target: FieldPath
    values: list[Any]
    line: int


class Reference(Tagged, frozen=True):
    """`!reference`: another field's final value."""

    target: FieldPath
    line: int


Axis: TypeAlias = Sweep | Range | RandomUniform
AXES = (Sweep, Range, RandomUniform)
"""The tags that make several trainings of a configuration."""


def name_of(node: Any) -> str:
    """The YAML tag of a node."""
    return next(f"!{tag}" for tag, kind in _KINDS.items() if isinstance(node, kind))


def text_of(place: FieldPath) -> str:
    """A field's path as text: `model.layers.0.width`."""
    return ".".join(map(str, place))


def below(data: Any, place: FieldPath = ()) -> Iterator[tuple[FieldPath, Any]]:
    """Every value that is neither a mapping nor a list, with its place, in the file's order."""
    if isinstance(data, Mapping):
        for name, value in data.items():
            yield from below(value, (*place, name))
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from below(value, (*place, number))
    else:
        yield place, data


# --- As they are written ------------------------------------------------------------------------------


def made(tag: str, fields: Any, line: int) -> tuple[Any, list[str]]:
    """Make a tag's node from its fields; returns the node (None if it is wrong) and the problems."""
    kind, example = _KINDS[tag], f"write !{tag} {_EXAMPLES[tag]}"
    if not isinstance(fields, Mapping):
        return None, [f"!{tag}: holds {fields!r}, but takes fields; {example}"]
    required, optional = _FIELDS[kind]
    problems = [
        f"!{tag}: there is no field {name}{suggestion(str(name), (*required, *optional))}"
        for name in fields
        if name not in required and name not in optional
    ]
    problems += [f"!{tag}: {name} is missing; {example}" for name in required if name not in fields]
    if problems:
        return None, problems
    values, problems = _MAKERS[kind](dict(fields))
    return (None if problems else kind(**values, line=line)), [f"!{tag}: {problem}" for problem in problems]


def place_in(text: Any) -> FieldPath | None:
    """Parse a place such as `model.layers[0].width`; None: the text has another form."""
    if not isinstance(text, str) or _PLACE.fullmatch(text) is None:
        return None
    parts = re.findall(r"\[(\d+)\]|([^.\[\]]+)", text)
    return tuple(int(number) if number else name for number, name in parts)


_PLACE = re.compile(r"[^.\[\]]+(\[\d+\])*(\.[^.\[\]]+(\[\d+\])*)*")

_Made: TypeAlias = tuple[dict[str, Any], list[str]]


def _a_sweep(fields: dict[str, Any]) -> _Made:
    values = fields["values"]
    if not isinstance(values, list) or not values:
        return fields, [f"values is {values!r}, but takes a list of at least one value"]
    inside = {name_of(node) for _, node in below(values) if isinstance(node, (*AXES, CoupledSweep))}
    return fields, [f"values holds a {each}; a sweep's values cannot be sweeps" for each in sorted(inside)]


def _a_coupled_sweep(fields: dict[str, Any]) -> _Made:
    target, wrong = _a_reference({"target": fields["target"]})
    sweep, problems = _a_sweep({"values": fields["values"]})
    return {**target, **sweep}, wrong + problems


def _a_reference(fields: dict[str, Any]) -> _Made:
    place = place_in(fields["target"])
    wrong = f"target is {fields['target']!r}, but takes the path of a field, such as model.layers[0].width"
    return {"target": place}, [wrong] if place is None else []


def _a_range(fields: dict[str, Any]) -> _Made:
    whole = all(type(fields[name]) is int for name in ("start", "stop"))
    fields = {
        "step": 1 if whole else 0.1,
        **{name: fields[name] for name in fields if fields[name] is not None},
    }
    problems = _numbers(fields, "start", "stop", "step")
    if problems:
        return fields, problems
    start, stop, step = fields["start"], fields["stop"], fields["step"]
    if step == 0:
        return fields, [f"step is 0, which leads nowhere from {start}; leave it out, or write another step"]
    if (stop - start) * step < 0:
        return fields, [
            f"no step of {step} leads from {start} to {stop}; swap the two, or change the step's sign"
        ]
    return fields, []


def _a_random_uniform(fields: dict[str, Any]) -> _Made:
    fields = {"log": False, "size": DEFAULT_SIZE, **fields}
    problems = _numbers(fields, "start", "stop")
    if type(fields["log"]) is not bool:
        problems.append(f"log is {fields['log']!r}, but takes true or false")
    if type(fields["size"]) is not int or fields["size"] < 1:
        problems.append(f"size is {fields['size']!r}, but takes a whole number of at least 1")
    if problems:
        return fields, problems
    start, stop = float(fields["start"]), float(fields["stop"])
    if start > stop:
        problems.append(f"start is {start:g}, above stop, which is {stop:g}; swap the two")
    if fields["log"] and min(start, stop) <= 0:
        problems.append(f"start is {start:g}, but with log: true both ends take a number above 0")
    return {**fields, "start": start, "stop": stop}, problems


def _numbers(fields: Mapping[str, Any], *names: str) -> list[str]:
    return [
        f"{name} is {fields[name]!r}, but takes a number"
        for name in names
        if type(fields[name]) not in (int, float) or not math.isfinite(fields[name])
    ]


def _exact(number: float) -> Fraction:
    """A number's decimal representation as an exact fraction."""
    return Fraction(repr(number))


_KINDS: dict[str, type[Any]] = {
    "sweep": Sweep,
    "coupled-sweep": CoupledSweep,
    "range": Range,
    "random_uniform": RandomUniform,
    "reference": Reference,
}
_EXAMPLES = {
    "sweep": "{values: [1, 2]}",
    "coupled-sweep": "{target: training.batch_size, values: [1, 2]}",
    "range": "{start: 10, stop: 30, step: 5}",
    "random_uniform": "{start: 1e-5, stop: 1e-2, log: true, size: 7}",
    "reference": "{target: model.layers[0].width}",
}
_FIELDS: dict[type[Any], tuple[tuple[str, ...], tuple[str, ...]]] = {
    Sweep: (("values",), ()),
    CoupledSweep: (("target", "values"), ()),
    Range: (("start", "stop"), ("step",)),
    RandomUniform: (("start", "stop"), ("log", "size")),
    Reference: (("target",), ()),
}
_MAKERS: dict[type[Any], Callable[[dict[str, Any]], _Made]] = {
    Sweep: _a_sweep,
    CoupledSweep: _a_coupled_sweep,
    Range: _a_range,
    RandomUniform: _a_random_uniform,
    Reference: _a_reference,
}

TAGS = tuple(_KINDS)
"""The tags' names."""
