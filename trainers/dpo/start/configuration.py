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
    """What both objectives have: the core's sections, of the same fields."""

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
    """What can be learned."""

    settings: type[Common]
    """Its configuration."""
    arguments: type[Section]
    """The sections that the task takes."""
    task: PyObject
    defaults: Mapping[str, Any]
    """Fields, by their paths, that have other defaults than the core's, or are there to be asked for."""


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

_INSTEAD = {"training.num_epochs": "num_steps", "training.schedule.type": "lr_scheduler_type"}
"""Defaults, and the field of `training` that would contradict each if it is set."""


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
    data, wrong = _without_others(document.data, name)
    document.data = _with_defaults(data, objective)
    problems += [document.problem(*each) for each in wrong]
    read = convert(document, objective.settings, problems, hint=hint_from(document, objective.settings))
    _check_rates(document, problems)
    ranges = [] if read is None else _ranges(getattr(read, "data", None))
    wrong = [*contradictions(document.data, problems), *ranges]
    problems += [document.problem(*each) for each in wrong]
    if problems or read is None:
        raise ConfigError(problems)
    arguments = {
        struct_field: getattr(read, struct_field) for struct_field in objective.arguments.__struct_fields__
    }
    common = {each: getattr(read, each) for each in core.Common.__struct_fields__}
    return core.Config(**common, task=objective.task, task_kwargs=plain(arguments))


_Wrong: TypeAlias = list[tuple[FieldPath, str]]
"""Fields that something is wrong with, and what."""


def _without_others(data: Mapping[str, Any], name: str) -> tuple[dict[str, Any], _Wrong]:
    """The data without fields that another objective has alone, and what is wrong with these."""
    known = {each: {at.path for at in fields_of(OBJECTIVES[each].arguments)} for each in OBJECTIVES}
    others = {path: other for other, paths in known.items() for path in paths - known[name]}
    sections = {section: held for section, held in data.items() if isinstance(held, Mapping)}
    found = [(one, field) for one in sections for field in sections[one] if f"{one}.{field}" in others]
    message = "is for objective: {}, but this training's is {}"
    wrong: _Wrong = [(at, message.format(others[".".join(at)], name)) for at in found]
    left = dict(data)
    for section in {section for section, _ in found}:
        mine = {field: value for field, value in data[section].items() if (section, field) not in found}
        left = {**left, section: mine} if mine else {one: left[one] for one in left if one != section}
    return left, wrong


def _with_defaults(data: Mapping[str, Any], objective: Objective) -> Mapping[str, Any]:
    """The fields that are set, and an objective's defaults of others."""
    training = data.get("training")
    given = training if isinstance(training, Mapping) else {}
    for path, value in objective.defaults.items():
        if given.get(_INSTEAD.get(path, "")) is None:
            data = _with_default(data, path.split("."), value)
    return data


def _with_default(held: Any, path: list[str], value: Any) -> Any:
    """A section with a default for what it does not say, not even as null."""
    if not path or not isinstance(held, Mapping):
        return held
    name, *inner = path
    return {**held, name: _with_default(held.get(name, {} if inner else value), inner, value)}


class _Rates(Section, frozen=True):
    """Optimizer arguments that flags set, so that mistakes in them are reported before the optimizer is
    made."""

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
    """Problems of ranges, which are two numbers each."""
    return [
        (("data", "mutable_ranges"), f"has {[first, last]}, whose end is before its beginning")
        for first, last in getattr(data, "mutable_ranges", ())
        if last < first
    ]
