"""The trainings of a configuration with sweeps, and which of them to run. Pure, but for `by_array`, which
asks the job that this process belongs to.

A `!sweep`, a `!range` and a `!random_uniform` each make an axis; the members are their cartesian product, in
the file's order, and the last axis varies fastest. So member N of an array of jobs is one of them.
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
"""Plain data without sweeps and references, from such as may hold some; None: what is wrong with them has
come to the list."""


MOST = 1_000_000
"""Trainings that a configuration may stand for: more than any scheduler takes as one array."""


class _Axis(NamedTuple):
    place: FieldPath
    node: Axis
    seed: str
    """What is drawn follows from it."""
    coupled: list[tuple[FieldPath, CoupledSweep]]


class Members:
    """All trainings that some data stand for: one, where there is no sweep in them."""

    def __init__(self, data: Mapping[str, Any], problems: list[str]):
        """What is wrong with the sweeps comes to `problems`."""
        self._data = data
        self._axes = axes(data, problems)
        if self.count > MOST:
            problems.append(f"stands for {self.words()}, but may for {MOST} at most; make a sweep shorter")

    @property
    def count(self) -> int:
        """How many there are."""
        return math.prod(axis.node.size for axis in self._axes)

    @property
    def swept(self) -> bool:
        """Whether there is a sweep at all."""
        return bool(self._axes)

    def values(self, number: int) -> dict[FieldPath, Any]:
        """What a member has for its own, by place."""
        given: dict[FieldPath, Any] = {}
        for axis in reversed(self._axes):
            number, index = divmod(number, axis.node.size)
            mine = {axis.place: axis.node.value(index, axis.seed)}
            mine |= {place: node.values[index] for place, node in axis.coupled}
            given = mine | given
        return given

    def fields(self, number: int, problems: list[str]) -> dict[str, Any] | None:
        """A member's data, with its number and values as `member`; None: references lead nowhere."""
        before = len(problems)
        if not self._axes:
            settled = without_references(self._data, problems)
        else:
            settled = of_member(self._data, self.values(number), number, self.count, problems)
        return None if len(problems) > before else settled

    def words(self) -> str:
        """How many there are, and of what."""
        made_of = ", ".join(f"{text_of(axis.place)}: {axis.node.size}" for axis in self._axes)
        return f"{self.count} trainings ({made_of})"


def axes(data: Mapping[str, Any], problems: list[str]) -> list[_Axis]:
    """What makes several trainings of the data, in the file's order, with what goes along with each."""
    found = list(below(data))
    seed = _seed(data)
    made = {
        place: _Axis(place, node, f"{seed} {text_of(place)}", [])
        for place, node in found
        if isinstance(node, AXES)
    }
    for place, node in found:
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
    """The data with values in the sweeps' places, and then references; `member` tells of them."""
    settled: dict[str, Any] = without_references(_with(data, values, ()), problems)
    given = {text_of(place): _at(settled, place) for place in values}
    return {**settled, "member": {"number": number, "of": of, "values": given}}


def members(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every training that a configuration with sweeps expands to, as plain data for `Config.of`.

    Raises:
        ConfigError: something is wrong with its sweeps or references.
    """
    problems: list[str] = []
    found = Members(fields, problems)
    each = [found.fields(number, problems) for number in range(0 if problems else found.count)]
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return [data for data in each if data is not None]


# --- Which one is trained -----------------------------------------------------------------------------


def by_array(data: Mapping[str, Any], problems: list[str]) -> dict[str, Any] | None:
    """The member whose number this process has in its array of jobs; data without a sweep as they are."""
    wrong: list[str] = []
    found = Members(data, wrong)
    number, size = (int(os.environ.get(f"CASTOFF_ARRAY_{name}") or 0) for name in ("INDEX", "COUNT"))
    if not wrong and found.count > 1 and size != found.count:
        wrong = [_not_of_this_size(found, size)]
    problems += wrong
    return None if wrong else found.fields(number if found.count > 1 else 0, problems)


def _not_of_this_size(found: Members, size: int) -> str:
    line = f"array: {{count: {found.count}}}"
    if size > 1:
        return f"stands for {found.words()}, but this array has {size} members; write {line} in the job file"
    return (
        f"stands for {found.words()}: train each in a job of an array, with {line} in the job file; or "
        f"choose one, from 0 to {found.count - 1}, with --member N (--members lists them), or in Python by "
        "castoff.trainers.members(fields)[N]"
    )


def by_hand(number: int) -> Choose:
    """The member that a user chooses."""

    def choose(data: Mapping[str, Any], problems: list[str]) -> dict[str, Any] | None:
        wrong: list[str] = []
        found = Members(data, wrong)
        if not wrong and not found.swept:
            wrong = [f"--member: is {number}, but there is no sweep to choose from; leave it out"]
        elif not wrong and not 0 <= number < found.count:
            last = found.count - 1
            wrong = [f"--member: is {number}, but there are {found.words()}; choose one from 0 to {last}"]
        problems += wrong
        return None if wrong else found.fields(number, problems)

    return choose


# --- Parts --------------------------------------------------------------------------------------------


def _seed(data: Mapping[str, Any]) -> int:
    """The training's; 0, its default, where it is not set, or is itself one of several."""
    training = data.get("training")
    seed = training.get("seed") if isinstance(training, Mapping) else None
    return seed if type(seed) is int else 0


def _wrong(data: Mapping[str, Any], node: CoupledSweep, made: Mapping[FieldPath, _Axis]) -> str | None:
    """Why a coupled sweep cannot go along with its target."""
    path = text_of(node.target)
    try:
        held = _at(data, node.target)
    except (LookupError, ValueError):
        return f"goes along with {path}, but there is no such field"
    if not isinstance(held, Sweep):
        kind = f"a {name_of(held)}" if isinstance(held, (*AXES, CoupledSweep)) else f"{held!r}"
        return f"goes along with {path}, which is {kind}; name a !sweep"
    if len(held.values) != len(node.values):
        return f"has {len(node.values)} values, but {path}, with which it goes along, has {len(held.values)}"
    return None


def _real(data: Mapping[str, Any], target: FieldPath) -> FieldPath:
    """A target's place as it stands in the data, where a name may be a number."""
    held: Any = data
    real: list[str | int] = []
    for name in target:
        real.append(int(name) if isinstance(held, list) or name not in held else name)
        held = step_into(held, name)
    return tuple(real)


def _at(data: Any, place: FieldPath) -> Any:
    for name in place:
        data = step_into(data, name)
    return data


def _with(data: Any, values: Mapping[FieldPath, Any], place: FieldPath) -> Any:
    """A copy, with values at their places."""
    if place in values:
        return values[place]
    if isinstance(data, Mapping):
        return {name: _with(value, values, (*place, name)) for name, value in data.items()}
    if isinstance(data, list):
        return [_with(value, values, (*place, number)) for number, value in enumerate(data)]
    return data
