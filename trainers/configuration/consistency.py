"""Fields of a training that contradict each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from castoff.launcher.typed import Problem
from castoff.launcher.typed.document import FieldPath
from castoff.launcher.typed.structure import is_meant

_LENGTHS = ("num_epochs", "num_steps")
"""Fields of a training, of which one says how long it is."""


def contradictions(data: Mapping[str, Any], known: list[Problem]) -> list[tuple[FieldPath, str]]:
    """What is wrong with fields of a training that are right one by one; `known`: what is wrong with one."""
    training = data.get("training")
    if not isinstance(training, Mapping):
        return []
    given = [name for name in _LENGTHS if training.get(name) is not None]
    if not given and not any(is_meant(("training", name), known) for name in _LENGTHS):
        missing = "is missing; say how long to train, with it or with training.num_steps"
        return [(("training", "num_epochs"), missing)]
    if len(given) == 2:
        both = f"is {training['num_steps']!r} beside training.num_epochs: {training['num_epochs']!r}"
        return [(("training", "num_steps"), f"{both}; one of the two ends the training, so drop the other")]
    return []
