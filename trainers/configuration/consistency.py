"""Fields of a training that contradict each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from castoff.launcher.typed import Problem
from castoff.launcher.typed.document import FieldPath
from castoff.launcher.typed.structure import is_meant

_LENGTHS = ("num_epochs", "num_steps")
"""Fields of `training` that set its length; exactly one is required."""


def contradictions(data: Mapping[str, Any], known: list[Problem]) -> list[tuple[FieldPath, str]]:
    """Problems with combinations of fields; `known`: the problems already found in single fields."""
    training = data.get("training")
    if not isinstance(training, Mapping):
        return []
    given = [name for name in _LENGTHS if training.get(name) is not None]
    if not given and not any(is_meant(("training", name), known) for name in _LENGTHS):
        missing = "is missing; set either this or training.num_steps"
        return [(("training", "num_epochs"), missing)]
    if len(given) == 2:
        both = f"is {training['num_steps']!r}, and training.num_epochs is {training['num_epochs']!r}"
        return [
            (("training", "num_steps"), f"{both}; only one of them can end the training, so drop the other")
        ]
    return []
