"""Replaces each `!reference` by the value at the path that it names. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from castoff.launcher.typed.suggestion import did_you_mean
from castoff.trainers.configuration.tags import FieldPath, Reference, text_of


def without_references(data: Any, problems: list[str]) -> Any:
    """A copy of the data in which each reference is replaced by the value it refers to.

    References to missing values and circular references are added to `problems`.
    """
    return _Resolution(data, problems).of(data, (), ())


def step_into(container: Any, name: str | int) -> Any:
    """The item of a mapping or list under one step of a path, which is a name or a number.

    Raises:
        LookupError: there is no such item.
        ValueError: a list's item is not given by a number.
    """
    if isinstance(container, Mapping):
        return container[name if name in container else int(name)]  # YAML reads the key in `0: x` as a number
    if isinstance(container, list):
        return container[int(name)]
    raise KeyError(name)


class _Resolution:
    """Follows the references in some data."""

    def __init__(self, data: Any, problems: list[str]):
        self._data = data
        self._problems = problems
        self._circles: list[set[FieldPath]] = []

    def of(self, value: Any, place: FieldPath, behind: tuple[FieldPath, ...]) -> Any:
        """The value at `place`, with references replaced; `behind`: places of the references that led to
        it.
        """
        if isinstance(value, Reference):
            return self._followed(value, place, behind)
        if isinstance(value, Mapping):
            return {name: self.of(inner, (*place, name), behind) for name, inner in value.items()}
        if isinstance(value, list):
            return [self.of(inner, (*place, number), behind) for number, inner in enumerate(value)]
        return value

    def _followed(self, reference: Reference, place: FieldPath, behind: tuple[FieldPath, ...]) -> Any:
        if place in behind:
            circle = behind[behind.index(place) :]
            if set(circle) not in self._circles:
                self._circles.append(set(circle))
                round_it = " to ".join(map(text_of, (*circle, place)))
                self._report(reference, place, f"!reference is circular: {round_it}")
            return None
        behind = (*behind, place)
        value: Any = self._data
        reached: FieldPath = ()
        for name in reference.target:
            if isinstance(value, Reference):
                value = self._followed(value, reached, behind)
            try:
                value = step_into(value, name)
            except (LookupError, ValueError):
                near = did_you_mean(name, value if isinstance(value, Mapping) else ())
                where = f"{text_of(reached)} has no {name}" if reached else f"there is no {name}"
                wrong = f"!reference leads to {text_of(reference.target)}, but {where}{near}"
                self._report(reference, place, wrong)
                return None
            reached = (*reached, name)
        return self.of(value, reached, behind)

    def _report(self, reference: Reference, place: FieldPath, wrong: str) -> None:
        problem = f"{text_of(place)} (line {reference.line}): {wrong}"
        if problem not in self._problems:
            self._problems.append(problem)
