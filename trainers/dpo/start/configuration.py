"""The YAML of `castoff train dpo`: the core's own sections, those of an objective, and its defaults."""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from launcher.typed import Problem
from launcher.typed.document import FieldPath
from launcher.typed.structure import convert
from launcher.typed.suggestion import did_you_mean
from trainers.configuration import config as core
from trainers.configuration.consistency import contradictions
from trainers.configuration.fields import ConfigError
from trainers.configuration.overrides import one_training
from trainers.configuration.pyobject import PyObject
from trainers.configuration.section import Section
from trainers.configuration.sweep import Choose, by_array
from trainers.configuration.synonyms import hint_from
from trainers.configuration.yaml_text import plain
from trainers.dpo import settings


class Common(Section, frozen=True, kw_only=True):
    """What both objectives have: the core's sections, of the same fields."""

    name: str
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    training: core.Training
    parallel: core.Parallel = core.Parallel()
    validation: core.Validation = core.Validation()
    testing: core.Testing = core.Testing()
    logging: core.Logging = core.Logging()
    monitoring: core.Monitoring = core.Monitoring()
    early_stopping: core.EarlyStopping | None = None
    member: core.Member | None = None


class Preferences(Common, frozen=True, kw_only=True):
    """`objective: dpo`, and the sections of `settings.Dpo`."""

    objective: Literal["dpo"]
    """What is learned."""
    data: settings.Pairs
    base_model: settings.BaseModel
    preference: settings.Preference = settings.Preference()


class Structures(Common, frozen=True, kw_only=True):
    """`objective: likelihood`, and the sections of `settings.Likelihood`."""

    objective: Literal["likelihood"]
    """What is learned."""
    data: settings.Chains
    model: settings.Model = settings.Model()


class Objective(NamedTuple):
    """What can be learned."""

    settings: type[Common]
    """Its configuration."""
    arguments: type[Section]
    """Those of its sections that the task takes."""
    task: PyObject
    defaults: Mapping[str, Any]
    """Fields that have other defaults than the core's, or are there to be asked for."""


_OPTIMIZER = PyObject("torch.optim.Adam")

OBJECTIVES = {
    "dpo": Objective(
        Preferences,
        settings.Dpo,
        PyObject("trainers.dpo.task.DpoTask"),
        {
            "name": "dpo",
            "training": {
                "num_epochs": 10,
                "batch_size": 1,
                "optimizer_type": _OPTIMIZER,
                "optimizer_kwargs": {"lr": 3e-7},
            },
            "data": {},
            "base_model": {},
        },
    ),
    "likelihood": Objective(
        Structures,
        settings.Likelihood,
        PyObject("trainers.dpo.likelihood.LikelihoodTask"),
        {
            "name": "likelihood",
            "training": {
                "num_epochs": 100,
                "batch_size": 8,
                "optimizer_type": _OPTIMIZER,
                "optimizer_kwargs": {"lr": 1e-3},
                "schedule": {"type": "cosine"},
                "clip_grad_norm": 1.0,
            },
            "data": {},
        },
    ),
}

DEFAULT_OBJECTIVE = "dpo"


def read(
    fields: Any,
    flags: Mapping[str, Any] | None = None,
    overrides: Iterable[str] = (),
    choose: Choose = by_array,
    *,
    origin: str = "config",
) -> core.Config:
    """The core's configuration from plain data; `flags`, by the fields' paths, win over it, then overrides.

    `choose` takes one of the trainings that sweeps stand for: that of this process's array.

    Raises:
        ConfigError: with every problem that it has.
    """
    problems: list[Problem] = []
    document = one_training(fields, flags or {}, overrides, choose, core.RATE, origin, problems)
    name = document.data.get("objective", DEFAULT_OBJECTIVE)
    objective = OBJECTIVES.get(name) if isinstance(name, str) else None
    if objective is None:
        message = f"is {name!r}, but takes {', '.join(OBJECTIVES)}{did_you_mean(name, OBJECTIVES)}"
        raise ConfigError([*problems, document.problem(("objective",), message)])
    data, wrong = _without_others({**document.data, "objective": name}, name)
    document.data = data = _with_defaults(data, _defaults(objective, data.get("training")))
    problems += [document.problem(*each) for each in wrong]
    read = convert(document, objective.settings, problems, hint=hint_from(document, objective.settings))
    wrong = contradictions(data) + _rates(data["training"]) + _ranges(data["data"])
    problems += [document.problem(*each) for each in wrong]
    if problems or read is None:
        raise ConfigError(problems)
    arguments = {each: getattr(read, each) for each in objective.arguments.__struct_fields__}
    common = {each: getattr(read, each) for each in Common.__struct_fields__}
    return core.Config(**common, task=objective.task, task_kwargs=plain(arguments))


_Wrong: TypeAlias = list[tuple[FieldPath, str]]
"""Fields that something is wrong with, and what."""


def _without_others(data: Mapping[str, Any], name: str) -> tuple[dict[str, Any], _Wrong]:
    """The data without fields that another objective has alone, and what is wrong with these."""
    mine = _fields(OBJECTIVES[name].arguments)
    others = {path: other for other, each in OBJECTIVES.items() for path in _fields(each.arguments) - mine}
    left: dict[str, Any] = dict(data)
    wrong: _Wrong = []
    for section, fields in data.items():
        if not isinstance(fields, Mapping):
            continue
        of_others = [field for field in fields if f"{section}.{field}" in others]
        for field in of_others:
            message = f"is for objective: {others[f'{section}.{field}']}, but this training's is {name}"
            wrong.append(((section, field), message))
        left[section] = {field: value for field, value in fields.items() if field not in of_others}
        if of_others and not left[section]:
            del left[section]
    return left, wrong


def _fields(arguments: type[Section]) -> set[str]:
    """The paths of the fields in the sections of a task."""
    return {
        f"{section.name}.{field}"
        for section in msgspec.structs.fields(arguments)
        for field in section.type.__struct_fields__
    }


def _defaults(objective: Objective, training: Any) -> Mapping[str, Any]:
    """Those of an objective, but for what would stand beside something that a configuration says instead."""
    instead = {"num_steps": "num_epochs", "lr_scheduler_type": "schedule"}
    reported = training if isinstance(training, Mapping) else {}
    dropped = {default for field, default in instead.items() if reported.get(field) is not None}
    kept = {name: value for name, value in objective.defaults["training"].items() if name not in dropped}
    return {**objective.defaults, "training": kept}


def _with_defaults(given: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are set, and the others' defaults."""
    filled = dict(given)
    for name, value in defaults.items():
        if name not in filled:
            filled[name] = value
        elif isinstance(value, Mapping) and isinstance(filled[name], Mapping):
            filled[name] = _with_defaults(filled[name], value)
    return filled


def _rates(training: Any) -> _Wrong:
    """What is wrong with arguments of the optimizer that flags set: said before anything is computed."""
    arguments = training.get("optimizer_kwargs") if isinstance(training, Mapping) else None
    return [
        (("training", "optimizer_kwargs", name), f"is {arguments[name]!r}, but takes a number of at least 0")
        for name in ("lr", "weight_decay")
        if isinstance(arguments, Mapping) and name in arguments and not _at_least_0(arguments[name])
    ]


def _ranges(data: Any) -> _Wrong:
    """What is wrong with ranges that are two numbers each."""
    given = data.get("mutable_ranges") if isinstance(data, Mapping) else None
    ranges = [each for each in given if isinstance(each, list)] if isinstance(given, list) else []
    return [
        (("data", "mutable_ranges"), f"has {each}, whose end is before its beginning")
        for each in ranges
        if len(each) == 2 and all(isinstance(end, int) for end in each) and each[1] < each[0]
    ]


def _at_least_0(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf
