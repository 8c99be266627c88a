"""Fields of a training that contradict each other, or have no effect beside others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from castoff.launcher.typed import Problem
from castoff.launcher.typed.document import FieldPath
from castoff.launcher.typed.structure import is_meant

if TYPE_CHECKING:
    from castoff.trainers.configuration.config import Config, Evaluation, Training


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


def without_effect(config: Config, *, limits_memory: bool = True) -> list[str]:
    """What a configuration says that changes nothing here, in words for the log.

    `limits_memory`: whether torch can, on the device that is there.
    """
    training = config.training
    parts: dict[str, Evaluation] = {"validation": config.validation, "testing": config.testing}
    candidates: list[tuple[str, object, str]] = [
        (
            "training.max_memory_per_gpu",
            training.max_memory_per_gpu is not None and not limits_memory,
            "torch limits no process's memory on this device",
        ),
        ("parallel.rank", config.parallel.rank is not None, "the launcher says it"),
        (
            "training.checkpoint_at",
            training.checkpoint_at and config.validation.every_steps is None,
            "without validation.every_steps each epoch ends with a checkpoint",
        ),
    ]
    for name, part in parts.items():
        candidates += [
            (f"{name}.drop_last", part.drop_last, "every sample counts, once"),
            (f"{name}.shuffle", part.shuffle, "sums do not depend on the order"),
        ]
    loaders: dict[str, Training | Evaluation] = {"training": training, **parts}
    for name, loaded in loaders.items():
        if not loaded.num_workers:
            why = f"{name}.num_workers is 0, and workers alone do so"
            candidates += [
                (f"{name}.{field}", getattr(loaded, field), why)
                for field in ("prefetch_factor", "persistent_workers")
            ]
    return [f"{path}: has no effect; {why}" for path, given, why in candidates if given]
