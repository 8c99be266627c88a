"""Fields set from outside, over what a configuration's file says: `training.num_epochs=3`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from trainers.core.fields import ConfigError
from trainers.core.yaml_text import read_yaml


def override(data: dict[str, Any], assignment: str, problems: list[str]) -> dict[str, Any]:
    """Put `field=value`, the value as YAML, into the data; what it says, as data of its own.

    What is wrong with it comes to `problems`.
    """
    path, equals, text = assignment.partition("=")
    if not equals or not all(path.split(".")):
        problems.append(f"override {assignment!r}: write it as FIELD=VALUE, as training.seed=3")
        return {}
    try:
        told = read_yaml(text)
    except ConfigError as error:
        problems.append(f"override {path}: {'; '.join(error.problems)}")
        return {}
    put(data, path, told)
    for name in reversed(path.split(".")):
        told = {name: told}
    return dict(told)


def put(data: dict[str, Any], path: str, value: Any) -> None:
    """Set a field of the data; sections on the way to it are copied, or made where there are none."""
    *sections, last = path.split(".")
    held = data
    for section in sections:
        inner = held.get(section)
        held[section] = dict(inner) if isinstance(inner, Mapping) else {}
        held = held[section]
    held[last] = value


def tells(told: Iterable[Mapping[str, Any]], path: str) -> bool:
    """Whether one of the overrides, each as the data that it stands for, sets a field."""
    for each in told:
        held: Any = each
        for name in path.split("."):
            held = held.get(name, msgspec.UNSET) if isinstance(held, Mapping) else msgspec.UNSET
        if held is not msgspec.UNSET:
            return True
    return False
