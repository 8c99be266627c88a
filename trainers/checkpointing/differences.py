"""Compares a checkpoint's configuration with the current one: which fields a resumed run may change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.flattened import GLOBAL_BATCH, WORLD_SIZE, Fields, under
from castoff.trainers.task import Task
from castoff.trainers.task.contract import declared_arguments

SILENT = {
    # the output, and how much is reported
    "name",
    "member",
    "log_level",
    "logging",
    "monitoring",
    "profile",
    "training.path",
    "training.run",
    "training.fresh",
    "training.resume_checkpoint",
    "training.log_every",
    "training.checkpoint_at",
    "training.checkpoint_every_steps",
    "training.keep_checkpoints",
    # the optimizer reports changed values itself when its state is loaded
    "training.optimizer_kwargs",
    "training.max_memory_per_gpu",
    # how ranks connect, and wait for each other
    "parallel.world_size",
    "parallel.rank",
    "parallel.master_addr",
    "parallel.master_port",
    "parallel.output_device",
    "parallel.start_timeout",
    "parallel.timeout",
    # how fast samples are loaded; the samples and their random streams do not depend on it
    "training.num_workers",
    "training.pin_memory",
    "training.prefetch_factor",
    "training.persistent_workers",
    "training.multiprocessing_context",
    "training.collect_garbage_every",
    "training.activation_checkpointing",
    "training.check_first_step",
    # how ranks share a set, which does not change sums over it
    "validation.num_workers",
    "validation.pin_memory",
    "validation.drop_last",
    "validation.prefetch_factor",
    "validation.persistent_workers",
    "validation.shuffle",
    "testing",
}
"""Fields that may change without a report, because training does not depend on them."""

REPORTED = {
    # how long training lasts, and which model is the best
    "training.num_epochs",
    "training.num_steps",
    "early_stopping",
    "validation.every_steps",
    "validation.batch_size",
    "validation.validator",
    # how the weights move
    "training.optimizer_args",
    "training.schedule",
    "training.lr_scheduler_type",
    "training.lr_scheduler_args",
    "training.lr_scheduler_kwargs",
    "training.lr_scheduler_per",
    "training.scaling",
    "training.clip_grad_norm",
    "training.freeze",
    "training.non_finite",
    # the last bits: the device, the type, and the order of summation
    "training.device",
    "training.precision",
    "training.compile",
    "training.batch_size",
    "training.gradient_accumulation_steps",
    WORLD_SIZE,
    "parallel.backend",
    "parallel.strategy",
    "parallel.fsdp",
    "parallel.find_unused_parameters",
    "parallel.gradient_as_bucket_view",
    "parallel.static_graph",
    "parallel.bucket_cap_mb",
    "parallel.communication_hook",
    "parallel.sync_batchnorm",
}
"""Fields that may change; the change takes effect from the checkpoint on, and is logged."""

MATTERS = {
    # the model and its loss
    "task",
    "task_kwargs",
    "model",
    "criterion",
    "apply_model",
    "training.optimizer_type",
    "training.ema_decay",
    # the samples, and their order
    "data",
    "training.seed",
    "training.shuffle",
    "training.drop_last",
    GLOBAL_BATCH,
}
"""Fields that must not change on resuming, because another value would make it a different training."""

_PARTS = ("training.batch_size", "training.gradient_accumulation_steps", WORLD_SIZE)
"""The factors of the global batch."""

_ABSENT = object()


@dataclass(frozen=True)
class Differences:
    """The changes since a checkpoint, a line each."""

    refused: list[str]
    """Changes that are not allowed."""
    reported: list[str]
    """Changes that take effect from the checkpoint on."""

    def check(self) -> None:
        """Refuse to resume if there are changes that are not allowed.

        Raises:
            ConfigError: there are; the error lists all of them, and remedies.
        """
        if self.refused:
            raise ConfigError([*self.refused, _WAYS_OUT])


_WAYS_OUT = (
    "this would be a different training: restore the checkpoint's values; or start over with "
    "training.fresh: true (castoff train --fresh), which renames the old folder; or train in a separate "
    "folder, with training.run: NAME"
)


def compare(
    before: Mapping[str, Any], now: Mapping[str, Any], checkpoint: str, step: int, task: Task | None = None
) -> Differences:
    """Compare the fields `before` of `checkpoint`, made at `step`, with those of `now`.

    `task` declares which of its arguments are in SILENT or REPORTED.
    """
    classes = _classes(task)
    old, new = _folded(before, now), _folded(now, before)
    refused, reported = [], []
    other_batch = old.get(GLOBAL_BATCH) != new.get(GLOBAL_BATCH)
    if other_batch:
        refused.append(_global_batch(old, new, checkpoint))
    for path in [*old, *(path for path in new if path not in old)]:
        was, value = old.get(path, _ABSENT), new.get(path, _ABSENT)
        kind = _class_of(path, classes)
        if was == value or kind is SILENT or path == GLOBAL_BATCH or (other_batch and path in _PARTS):
            continue
        if kind is MATTERS and _meaning(path, was) != _meaning(path, value):
            refused.append(f"{path}: {_is(value)}, but {checkpoint} was made with {_words(was)}")
            continue
        reported.append(f"{path}: was {_words(was)} until step {step}, {_is(value)} from here on")
    return Differences(refused, reported)


def digest(now: Mapping[str, Any], task: Task | None = None) -> str:
    """A digest of the fields in MATTERS: trainings that share it may resume from each other's checkpoints."""
    classes = _classes(task)
    meant = {
        path: _meaning(path, value) for path, value in now.items() if _class_of(path, classes) is MATTERS
    }
    return hashlib.sha256(json.dumps(meant, sort_keys=True).encode()).hexdigest()[:12]


def _classes(task: Task | None) -> list[tuple[set[str], set[str]]]:
    """The paths in SILENT and in REPORTED, with those that the task adds to each."""
    silent, reported = (
        declared_arguments(task, name) for name in ("volatile_arguments", "changeable_arguments")
    )
    return [(SILENT, SILENT | silent), (REPORTED, REPORTED | reported)]


def _class_of(path: str, classes: Iterable[tuple[set[str], set[str]]]) -> set[str]:
    """The class (SILENT, REPORTED or MATTERS) of a path; undeclared paths are in MATTERS."""
    return next((kind for kind, entries in classes if under(path, entries)), MATTERS)


def _meaning(path: str, value: Any) -> Any:
    """The part of a value that must not change: a path's file name; for `ema_decay`, whether it is set."""
    if path == "training.ema_decay":
        return value is not None and value is not _ABSENT
    if isinstance(value, str):
        return Path(value).name if Path(value).is_absolute() else value
    if isinstance(value, list):
        return [_meaning("", each) for each in value]
    if isinstance(value, dict):
        return {key: _meaning("", each) for key, each in value.items()}
    return value


def _global_batch(old: Mapping[str, Any], new: Mapping[str, Any], checkpoint: str) -> str:
    """A message that names the factors that changed the global batch, and how to keep it."""
    changed = [part for part in _PARTS if old.get(part) != new.get(part)] or [GLOBAL_BATCH]
    was, now = (" x ".join(_words(side.get(part, _ABSENT)) for part in _PARTS) for side in (old, new))
    line = (
        f"{', '.join(changed)}: the global batch, batch_size x gradient_accumulation_steps x ranks, is {now} "
        f"= {new[GLOBAL_BATCH]}, but {checkpoint} was made with {was} = {old.get(GLOBAL_BATCH)}"
    )
    batch_size, rest = divmod(old.get(GLOBAL_BATCH) or 0, new[_PARTS[1]] * new[WORLD_SIZE])
    return f"{line}; training.batch_size: {batch_size} keeps it" if batch_size and not rest else line


def _folded(mine: Mapping[str, Any], others: Mapping[str, Any]) -> Fields:
    """The fields in `mine`; those below a path are combined to a dict if `others` has a single value at
    that path.
    """
    folded: Fields = {}
    for path, value in mine.items():
        whole = next((above for above in _above(path) if above in others and above not in mine), None)
        if whole is None:
            folded[path] = value
        else:
            folded.setdefault(whole, {})[path[len(whole) + 1 :]] = value
    return folded


def _above(path: str) -> Iterable[str]:
    parts = path.split(".")
    return (".".join(parts[:number]) for number in range(1, len(parts)))


def _is(value: Any) -> str:
    return "is not given" if value is _ABSENT else f"is {_words(value)}"


def _words(value: Any) -> str:
    if value is _ABSENT:
        return "none given"
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
