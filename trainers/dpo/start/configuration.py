"""The YAML of `castoff train dpo`: the core's own sections, those of an objective, and its defaults."""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from castoff.launcher.typed import Problem
from castoff.launcher.typed.descriptions import fields as fields_of
from castoff.launcher.typed.document import Document, FieldPath
from castoff.launcher.typed.structure import convert
from castoff.launcher.typed.suggestion import did_you_mean
from castoff.trainers.configuration import config as core
from castoff.trainers.configuration.consistency import contradictions
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.overrides import one_training
from castoff.trainers.configuration.pyobject import PyObject
from castoff.trainers.configuration.section import Section
from castoff.trainers.configuration.sweep import Choose, by_array
from castoff.trainers.configuration.synonyms import hint_from
from castoff.trainers.configuration.yaml_text import plain
from castoff.trainers.dpo import settings

DEFAULT_OBJECTIVE: Final = "dpo"


class Common(core.Common, frozen=True, kw_only=True):
    """The core's sections, which both objectives have."""

    objective: Literal["dpo", "likelihood"] = DEFAULT_OBJECTIVE
    """What is learned."""


class Preferences(Common, frozen=True, kw_only=True):
    """`objective: dpo`, and the sections of `settings.Dpo`."""

    data: settings.Pairs
    base_model: settings.BaseModel
    preference: settings.Preference = settings.Preference()


class Structures(Common, frozen=True, kw_only=True):
    """`objective: likelihood`, and the sections of `settings.Likelihood`."""

    data: settings.Chains
    model: settings.Model = settings.Model()


class Objective(NamedTuple):
    """An objective of training."""

    settings: type[Common]
    """The type of the objective's configuration."""
    arguments: type[Section]
    """The sections that the objective's task takes."""
    task: PyObject
    defaults: Mapping[str, Any]
    """Defaults by field path, where they differ from the core's. Empty sections let missing fields be
    reported.
    """


_ADAM = PyObject("torch.optim.Adam")

OBJECTIVES = {
    "dpo": Objective(
        Preferences,
        settings.Dpo,
        PyObject("castoff.trainers.dpo.task.DpoTask"),
        {
            "name": "dpo",
            "training.num_epochs": 10,
            "training.batch_size": 1,
            "training.optimizer_type": _ADAM,
            "training.optimizer_kwargs.lr": 3e-7,
            "data": {},
            "base_model": {},
        },
    ),
    "likelihood": Objective(
        Structures,
        settings.Likelihood,
        PyObject("castoff.trainers.dpo.likelihood.LikelihoodTask"),
        {
            "name": "likelihood",
            "training.num_epochs": 100,
            "training.batch_size": 8,
            "training.optimizer_type": _ADAM,
            "training.optimizer_kwargs.lr": 1e-3,
            "training.schedule.type": "cosine",
            "training.clip_grad_norm": 1.0,
            "data": {},
        },
    ),
}

_SHARDED = ["FeedForward"]
"""Modules that are sharded on their own: the network's layers have methods that use parameters outside of
their forward passes.
"""

_INSTEAD = {"training.num_epochs": "num_steps", "training.schedule.type": "lr_scheduler_type"}
"""Fields with a default, each with the field of `training` that would contradict it if set."""


def read(
    fields: Any,
    flags: Mapping[str, Any] | None = None,
    overrides: Iterable[str] = (),
    choose: Choose = by_array,
    *,
    origin: str = "config",
) -> core.Config:
    """Read the core's configuration from plain data. `flags`, by the fields' paths, override it, and
    `overrides` override both.

    `choose` selects one of the trainings that a sweep describes: the one of this process's array index.

    Raises:
        ConfigError: lists every problem of the configuration.
    """
    problems: list[Problem] = []
    document = one_training(fields, flags or {}, overrides, choose, core.RATE, origin, problems)
    name = document.data.get("objective", DEFAULT_OBJECTIVE)
    objective = OBJECTIVES.get(name) if isinstance(name, str) else None
    if objective is None:
        message = f"is {name!r}, but takes {', '.join(OBJECTIVES)}{did_you_mean(name, OBJECTIVES)}"
        raise ConfigError([*problems, document.problem(("objective",), message)])
    data, wrong = _without_others(document.data, name)
    document.data = _with_defaults(data, objective)
    problems += [document.problem(*item) for item in wrong]
    read = convert(document, objective.settings, problems, hint=hint_from(document, objective.settings))
    _check_rates(document, problems)
    ranges = [] if read is None else _ranges(getattr(read, "data", None))
    wrong = [*contradictions(document.data, problems), *ranges]
    problems += [document.problem(*item) for item in wrong]
    if problems or read is None:
        raise ConfigError(problems)
    arguments = {
        struct_field: getattr(read, struct_field) for struct_field in objective.arguments.__struct_fields__
    }
    common = {item: getattr(read, item) for item in core.Common.__struct_fields__}
    return core.Config(**common, task=objective.task, task_kwargs=plain(arguments))


_Wrong: TypeAlias = list[tuple[FieldPath, str]]
"""Fields, each with what is wrong with it."""


def _without_others(data: Mapping[str, Any], name: str) -> tuple[dict[str, Any], _Wrong]:
    """The data without the fields that only other objectives have, and an error about each of them."""
    paths = {name: {field.path for field in fields_of(kind.arguments)} for name, kind in OBJECTIVES.items()}
    others = {path: other for other in OBJECTIVES for path in paths[other] - paths[name]}
    sections = {section: fields for section, fields in data.items() if isinstance(fields, Mapping)}
    foreign = [(part, field) for part in sections for field in sections[part] if f"{part}.{field}" in others]
    message = "is for objective: {}, but this training's is {}"
    wrong: _Wrong = [(path, message.format(others[".".join(path)], name)) for path in foreign]
    rest = dict(data)
    for section in {section for section, _ in foreign}:
        kept = {field: value for field, value in data[section].items() if (section, field) not in foreign}
        rest = {**rest, section: kept} if kept else {part: rest[part] for part in rest if part != section}
    return rest, wrong


def _with_defaults(data: Mapping[str, Any], objective: Objective) -> Mapping[str, Any]:
    """Add an objective's defaults for fields that are not set."""
    training = data.get("training")
    fields = training if isinstance(training, Mapping) else {}
    for path, value in objective.defaults.items():
        if fields.get(_INSTEAD.get(path, "")) is None:
            data = _with_default(data, path.split("."), value)
    parallel = data.get("parallel")
    if isinstance(parallel, Mapping) and parallel.get("strategy") == "fsdp":
        data = _with_default(data, ["parallel", "fsdp", "modules"], _SHARDED)
    return data


def _with_default(section: Any, path: list[str], value: Any) -> Any:
    """Add a default to a section that lacks the field; null counts as set."""
    if not path or not isinstance(section, Mapping):
        return section
    name, *inner = path
    return {**section, name: _with_default(section.get(name, {} if inner else value), inner, value)}


class _Rates(Section, frozen=True):
    """The types of optimizer arguments that flags set: mistakes in them are reported before the optimizer is
    made.
    """

    lr: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    weight_decay: Annotated[float, msgspec.Meta(ge=0)] = 0.0


def _check_rates(document: Document, problems: list[Problem]) -> None:
    path = ("training", "optimizer_kwargs")
    training = document.data["training"]
    arguments = training.get(path[1]) if isinstance(training, Mapping) else None
    if isinstance(arguments, Mapping):
        rates = {name: arguments[name] for name in _Rates.__struct_fields__ if name in arguments}
        convert(document.holding(rates), _Rates, problems, at=path)


def _ranges(data: Any) -> _Wrong:
    """Errors about ranges that end before they begin."""
    return [
        (("data", "mutable_ranges"), f"has {[first, last]}, whose end is before its beginning")
        for first, last in getattr(data, "mutable_ranges", ())
        if last < first
    ]
