"""The trainings of a configuration with sweeps, and which of them to run. Pure, except `by_array`, which
reads the job array's environment variables.

A `!sweep`, a `!range` and a `!random_uniform` each make an axis; the members are their cartesian product, in
the file's order, and the last axis varies fastest. Member N of a job array trains member N.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.references import step_into, without_references
from castoff.trainers.configuration.tags import (
    AXES,
    Axis,
    CoupledSweep,
    FieldPath,
    Sweep,
    below,
    name_of,
    text_of,
)

Choose: TypeAlias = "Callable[[Mapping[str, Any], list[str]], dict[str, Any] | None]"
"""Turns plain data with sweeps and references into those of one training. None: there are problems, which it
has added to the list."""


MOST = 1_000_000
"""The most trainings that a configuration may expand to; no scheduler takes so large an array."""


class _Axis(NamedTuple):
    place: FieldPath
    node: Axis
    seed: str
    """Determines the values that are drawn."""
    coupled: list[tuple[FieldPath, CoupledSweep]]


class Members:
    """All trainings that some data expand to: a single one if there is no sweep."""

    def __init__(self, data: Mapping[str, Any], problems: list[str]):
        """Problems of the sweeps are added to `problems`."""
        self._data = data
        self._axes = axes(data, problems)
        if self.count > MOST:
            problems.append(f"stands for {self.words()}, but at most {MOST} are allowed; shorten a sweep")

    @property
    def count(self) -> int:
        """The number of trainings."""
        return math.prod(axis.node.size for axis in self._axes)

    @property
    def swept(self) -> bool:
        """Whether the data contains a sweep."""
        return bool(self._axes)

    def values(self, number: int) -> dict[FieldPath, Any]:
        """A member's values of the swept fields, by the fields' paths."""
        by_place: dict[FieldPath, Any] = {}
        for axis in reversed(self._axes):
            number, index = divmod(number, axis.node.size)
            mine = {axis.place: axis.node.value(index, axis.seed)}
            mine |= {place: node.values[index] for place, node in axis.coupled}
            by_place = mine | by_place
        return by_place

    def fields(self, number: int, problems: list[str]) -> dict[str, Any] | None:
        """A member's data, with its number and values as `member`; None: a reference is wrong."""
        before = len(problems)
        if not self._axes:
            settled = without_references(self._data, problems)
        else:
            settled = of_member(self._data, self.values(number), number, self.count, problems)
        return None if len(problems) > before else settled

    def words(self) -> str:
        """The number of trainings and of each axis's values, for messages."""
        made_of = ", ".join(f"{text_of(axis.place)}: {axis.node.size}" for axis in self._axes)
        return f"{self.count} trainings ({made_of})"


def axes(data: Mapping[str, Any], problems: list[str]) -> list[_Axis]:
    """The axes in the data, in the file's order, each with the sweeps coupled to it."""
    nodes = list(below(data))
    seed = _seed(data)
    made = {
        place: _Axis(place, node, f"{seed} {text_of(place)}", [])
        for place, node in nodes
        if isinstance(node, AXES)
    }
    for place, node in nodes:
        if not isinstance(node, CoupledSweep):
            continue
        wrong = _wrong(data, node, made)
        if wrong is None:
            made[_real(data, node.target)].coupled.append((place, node))
        else:
            problems.append(f"{text_of(place)} (line {node.line}): !coupled-sweep {wrong}")
    return list(made.values())


def of_member(
    data: Mapping[str, Any], values: Mapping[FieldPath, Any], number: int, of: int | None, problems: list[str]
) -> dict[str, Any]:
    """The data with `values` for the sweeps, references resolved, and a section `member`."""
    settled: dict[str, Any] = without_references(_with(data, values, ()), problems)
    swept = {text_of(place): _at(settled, place) for place in values}
    return {**settled, "member": {"number": number, "of": of, "values": swept}}


def members(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every training that a configuration with sweeps expands to, as plain data for `Config.of`.

    Raises:
        ConfigError: a sweep or a reference is wrong.
    """
    problems: list[str] = []
    sweep = Members(fields, problems)
    trainings = [sweep.fields(number, problems) for number in range(0 if problems else sweep.count)]
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return [data for data in trainings if data is not None]


# --- Which one is trained -----------------------------------------------------------------------------


def by_array(data: Mapping[str, Any], problems: list[str]) -> dict[str, Any] | None:
    """Pick the member with this process's index in its job array; data without a sweep are unchanged."""
    wrong: list[str] = []
    sweep = Members(data, wrong)
    number, size = (int(os.environ.get(f"CASTOFF_ARRAY_{name}") or 0) for name in ("INDEX", "COUNT"))
    if not wrong and sweep.count > 1 and size != sweep.count:
        wrong = [_not_of_this_size(sweep, size)]
    problems += wrong
    return None if wrong else sweep.fields(number if sweep.count > 1 else 0, problems)


def _not_of_this_size(sweep: Members, size: int) -> str:
    line = f"array: {{count: {sweep.count}}}"
    if size > 1:
        return f"stands for {sweep.words()}, but this array has {size} members; write {line} in the job file"
    return (
        f"stands for {sweep.words()}: train each in a job of an array, with {line} in the job file; or "
        f"choose one, from 0 to {sweep.count - 1}, with --member N (--members lists them), or in Python by "
        "castoff.trainers.members(fields)[N]"
    )


def by_hand(number: int) -> Choose:
    """Pick the member with the number that a user chose."""

    def choose(data: Mapping[str, Any], problems: list[str]) -> dict[str, Any] | None:
        wrong: list[str] = []
        sweep = Members(data, wrong)
        if not wrong and not sweep.swept:
            wrong = [f"--member: is {number}, but there is no sweep to choose from; leave it out"]
        elif not wrong and not 0 <= number < sweep.count:
            last = sweep.count - 1
            wrong = [f"--member: is {number}, but there are {sweep.words()}; choose one from 0 to {last}"]
        problems += wrong
        return None if wrong else sweep.fields(number, problems)

    return choose


# --- Parts --------------------------------------------------------------------------------------------


def _seed(data: Mapping[str, Any]) -> int:
    """The training's seed; 0, the default, if it is not set or is itself swept."""
    training = data.get("training")
    seed = training.get("seed") if isinstance(training, Mapping) else None
    return seed if type(seed) is int else 0


def _wrong(data: Mapping[str, Any], node: CoupledSweep, made: Mapping[FieldPath, _Axis]) -> str | None:
    """Why a coupled sweep does not fit its target; None: it does."""
    path = text_of(node.target)
    try:
        field = _at(data, node.target)
    except (LookupError, ValueError):
        return f"is coupled to {path}, but there is no such field"
    if not isinstance(field, Sweep):
        kind = f"a {name_of(field)}" if isinstance(field, (*AXES, CoupledSweep)) else f"{field!r}"
        return f"is coupled to {path}, which is {kind}; name a !sweep"
    if len(field.values) != len(node.values):
        return f"has {len(node.values)} values, but {path}, to which it is coupled, has {len(field.values)}"
    return None


def _real(data: Mapping[str, Any], target: FieldPath) -> FieldPath:
    """The path of a target in the data, with names that are indices of a list there as integers."""
    container: Any = data
    real: list[str | int] = []
    for name in target:
        real.append(int(name) if isinstance(container, list) or name not in container else name)
        container = step_into(container, name)
    return tuple(real)


def _at(data: Any, place: FieldPath) -> Any:
    for name in place:
        data = step_into(data, name)
    return data


def _with(data: Any, values: Mapping[FieldPath, Any], place: FieldPath) -> Any:
    """A copy of the data with `values` at their paths."""
    if place in values:
        return values[place]
    if isinstance(data, Mapping):
        return {name: _with(value, values, (*place, name)) for name, value in data.items()}
    if isinstance(data, list):
        return [_with(value, values, (*place, number)) for number, value in enumerate(data)]
    return data
