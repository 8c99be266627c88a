"""Fields set from outside, over what a configuration's file says: `training.num_epochs=3`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from trainers.configuration.fields import ConfigError
from trainers.configuration.tags import AXES, CoupledSweep, Reference, name_of
from trainers.configuration.yaml_text import read_yaml


def override(data: dict[str, Any], assignment: str, problems: list[str]) -> dict[str, Any]:
    """Put `field=value`, the value as YAML, into the data; what it says, as data of its own.

    What is wrong with it comes to `problems`.
    """
    path, equals, text = assignment.partition("=")
    if not equals or not all(path.split(".")):
        problems.append(f"override {assignment!r}: write it as FIELD=VALUE, as training.seed=3")
        return {}
    try:
        given = read_yaml(text)
    except ConfigError as error:
        problems.append(f"override {path}: {'; '.join(error.problems)}")
        return {}
    blocked = _blocked(data, path.split("."))
    if blocked is not None:
        problems.append(f"override {path}: {blocked}")
        return {}
    put(data, path, given)
    for name in reversed(path.split(".")):
        given = {name: given}
    return dict(given)


def put(data: dict[str, Any], path: str, value: Any) -> None:
    """Set a field of the data; what is on the way to it is copied, and sections made where there are none."""
    *sections, last = path.split(".")
    held: Any = data
    for section in sections:
        name: Any = _name(held, section)
        inner = held[name] if isinstance(held, list) else held.get(name)
        if isinstance(inner, list):
            held[name] = list(inner)
        else:
            held[name] = dict(inner) if isinstance(inner, Mapping) else {}
        held = held[name]
    held[_name(held, last)] = value


def _name(held: Any, name: str) -> str | int:
    return int(name) if isinstance(held, list) else name


def _blocked(data: Mapping[str, Any], names: list[str]) -> str | None:
    """Why nothing can be set there: what stands on the way has no such parts."""
    held: Any = data
    for number, name in enumerate(names):
        above = ".".join(names[:number])
        if isinstance(held, list) and not (name.isdecimal() and int(name) < len(held)):
            return f"{above} is a list of {len(held)}, which has no {name}; write a number, counting from 0"
        if isinstance(held, (*AXES, CoupledSweep, Reference)):
            return f"{above} is a {name_of(held)}, which has no {name}; set {above} as a whole"
        if not isinstance(held, (Mapping, list)):
            return None
        held = held[int(name)] if isinstance(held, list) else held.get(name)
    return None


def tells(given: Iterable[Mapping[str, Any]], path: str) -> bool:
    """Whether one of the overrides, each as the data that it stands for, sets a field."""
    for each in given:
        held: Any = each
        for name in path.split("."):
            held = held.get(name, msgspec.UNSET) if isinstance(held, Mapping) else msgspec.UNSET
        if held is not msgspec.UNSET:
            return True
    return False
