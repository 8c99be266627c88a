"""Fields of a training that have no effect, given its other fields and its device."""

from __future__ import annotations

from castoff.trainers.configuration.config import Config, Evaluation, Training


def without_effect(config: Config, *, limits_memory: bool = True) -> list[str]:
    """Lines for the log: each field that is set but has no effect, with the reason.

    `limits_memory`: whether torch can limit a process's memory on this device.
    """
    training = config.training
    parts: dict[str, Evaluation] = {"validation": config.validation, "testing": config.testing}
    candidates: list[tuple[str, object, str]] = [
        (
            "training.max_memory_per_gpu",
            training.max_memory_per_gpu is not None and not limits_memory,
            "torch limits no process's memory on this device",
        ),
        ("parallel.rank", config.parallel.rank is not None, "the launcher sets it"),
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
            why = f"{name}.num_workers is 0, and only workers do so"
            candidates += [
                (f"{name}.{field}", getattr(loaded, field), why)
                for field in ("prefetch_factor", "persistent_workers")
            ]
    return [f"{path}: has no effect; {why}" for path, is_set, why in candidates if is_set]
