"""A configuration of `castoff train sedd` in the core's fields. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any, Literal, TypeAlias

import msgspec

from castoff.trainers.configuration import config as core
from castoff.trainers.configuration.pyobject import PyObject
from castoff.trainers.configuration.yaml_text import plain
from castoff.trainers.sedd import settings
from castoff.trainers.sedd.start.configuration import DEFAULT_ITERATIONS, Scaling, Settings
from castoff.trainers.sedd.start.words import MOVED

TASK = PyObject("castoff.trainers.sedd.task.SeddTask")


def core_config(given: Settings) -> core.Config:
    """The core's configuration. It is the same on any number of ranks, which apply scaling rules once they
    have met.
    """
    fields: dict[str, Any] = {
        name: getattr(given, name) for name in ("name", "log_level", "logging", "profile", "member")
    }
    fields |= {name: _same(getattr(given, name), kind) for name, kind in _ALIKE.items()}
    moved = {path: reduce(getattr, own_path.split("."), given) for path, own_path in MOVED.items()}
    for path, value in {**moved, **_computed(given)}.items():
        *sections, last = path.split(".")
        holder = reduce(lambda held, section: held.setdefault(section, {}), sections, fields)
        holder[last] = msgspec.structs.asdict(value) if isinstance(value, Scaling) else value
    return msgspec.convert(fields, core.Config)


_ALIKE: dict[str, type[msgspec.Struct]] = {
    "training": core.Training,
    "parallel": core.Parallel,
    "monitoring": core.Monitoring,
}
"""Sections whose fields mean the same as the core's fields of the same name."""


def _computed(given: Settings) -> dict[str, Any]:
    """The core's fields that are computed from several fields, or from one with other values."""
    training, optim, schedule = given.training, given.optim, given.lr_schedule
    endless = training.n_iters is None and training.epochs is None
    fields: dict[str, Any] = {
        "task": TASK,
        "task_kwargs": _task(given),
        "training.num_steps": DEFAULT_ITERATIONS if endless else training.n_iters,
        "training.optimizer_type": PyObject(f"torch.optim.{optim.optimizer}"),
        "training.optimizer_kwargs": {
            "lr": optim.lr,
            "betas": list(optim.betas),
            "eps": optim.eps,
            "weight_decay": optim.weight_decay,
        },
        "training.schedule.type": schedule.type.partition("_")[0],
        "training.precision": _precision(given.memory.mixed_precision),
        "training.checkpoint_every_steps": min(_snapshots(given).values(), default=None),
        "validation.every_steps": given.validation.eval_freq or training.eval_freq,
        "early_stopping": _early_stopping(given),
    }
    if schedule.type != "constant":
        fields |= {
            "training.schedule.steps": schedule.steps,
            "training.schedule.floor": schedule.min_lr_ratio,
        }
    return fields


def _precision(mixed: bool | Literal["bf16", "fp16"]) -> Literal["fp32", "bf16", "fp16"]:
    if isinstance(mixed, bool):
        return "bf16" if mixed else "fp32"
    return mixed


def _snapshots(given: Settings) -> dict[str, int]:
    """Steps between two checkpoints, by the fields that set it."""
    training, validation = given.training, given.validation
    asked = {
        "training.snapshot_freq": training.snapshot_freq,
        "training.snapshot_freq_for_preemption": training.snapshot_freq_for_preemption,
        "validation.checkpoint_freq": validation.checkpoint_freq,
    }
    return {field: steps for field, steps in asked.items() if steps is not None}


def _early_stopping(given: Settings) -> core.EarlyStopping | None:
    """Early stopping by the validation loss, the lower the better; None: the core's default, which compares
    the same.
    """
    validation = given.validation
    if validation.patience is None and not validation.min_delta:
        return None
    watched = {"metric": "loss", "mode": "min", "delta": validation.min_delta}
    return core.EarlyStopping(kwargs={"patience": validation.patience, "tasks": {"loss": watched}})


def _task(given: Settings) -> dict[str, Any]:
    """The sections and fields that the task takes, as plain data."""
    kwargs: dict[str, dict[str, Any]] = {}
    for section in msgspec.structs.fields(settings.Task):
        kwargs[section.name] = _same(getattr(given, section.name), section.type)
    kwargs["data"]["max_length"] = given.model.length or given.data.max_length
    kwargs["eval"]["proteins"] = _validated_with(given)
    data: dict[str, Any] = plain(kwargs)
    return data


def _validated_with(given: Settings) -> int | None:
    """The largest number of proteins to validate with, the same on any number of ranks; None: all."""
    limits = [] if given.eval.proteins is None else [given.eval.proteins]
    if given.validation.val_batch_limit is not None:
        limits.append(given.validation.val_batch_limit * (given.eval.batch_size or given.training.batch_size))
    return min(limits, default=None)


def _same(section: msgspec.Struct, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The section's values of the fields that the struct `kind` also has."""
    names = {field.name for field in msgspec.structs.fields(kind)}
    return {name: getattr(section, name) for name in section.__struct_fields__ if name in names}


def without_effect(given: Settings) -> list[str]:
    """Lines for the log about fields that are set but have no effect."""
    unused = {**_overruled(given), **_not_asked_for(given)}
    return [
        f"{field}: has no effect; {why}"
        for field, (is_so, why) in unused.items()
        if is_so and _set(given, field)
    ]


_Unused: TypeAlias = Mapping[str, tuple[object, str]]
"""Fields, each with whether it has no effect in this configuration, and why."""


def _overruled(given: Settings) -> _Unused:
    """Fields that others override, or that mean nothing to this trainer."""
    often = given.validation.eval_freq
    snapshots = _snapshots(given)
    least = min(snapshots.values(), default=0)
    oftener = ", ".join(field for field, steps in snapshots.items() if steps == least)
    best = "each validation follows a checkpoint, and the best stays"
    newest = (
        "resuming takes the newest, so training.keep_checkpoints of them are kept in addition to the best"
    )
    return {
        "training.eval_freq": (often, f"validation.eval_freq says how often: every {often} steps"),
        "validation.checkpoint_on_improvement": (True, best),
        "validation.save_best_only": (True, newest),
        "ddp.broadcast_buffers": (True, "the network has no buffer that changes, so none is sent"),
    } | {
        field: (
            field != "training.snapshot_freq" and steps > least,
            f"{oftener} already asks for checkpoints more often",
        )
        for field, steps in snapshots.items()
    }


def _not_asked_for(given: Settings) -> _Unused:
    """Fields of features that are not used."""
    data, noise, scaling = given.data, given.noise, given.scaling
    no_file = not (data.datafile or data.validation_datafile or data.test_datafile), "no data file is given"
    is_constant = given.lr_schedule.type == "constant"
    levels = noise.type == "loglinear", "noise.type is loglinear, which has eps"
    lessons = not given.curriculum.enabled, "curriculum.enabled is false"
    return {
        "lr_schedule.steps": (is_constant, "a constant rate has no end"),
        "lr_schedule.min_lr_ratio": (is_constant, "a constant rate never falls"),
        "scaling.cap": ("capped" not in (scaling.learning_rate, scaling.warmup), "no rule is capped"),
        "data.synthetic": (data.datafile, "there are real proteins, those of data.datafile"),
        "data.min_length": no_file,
        "data.max_unknown": no_file,
        "noise.eps": (not levels[0], f"noise.type is {noise.type}, which has sigma_min and _max"),
        "noise.sigma_min": levels,
        "noise.sigma_max": levels,
        "curriculum.preschool_time": lessons,
        "curriculum.difficulty_ramp": lessons,
        "monitoring.sample_frequency": (not given.sampling.number, "sampling.number is 0"),
    }


def _set(given: Settings, field: str) -> bool:
    """Whether a field differs from its default."""
    section, name = field.split(".")
    values = getattr(given, section)
    return bool(getattr(values, name) != getattr(type(values)(), name))
