"""Checks which parameters a task passes to its optimizers: exactly the model's that require a gradient."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

from torch import Tensor, nn

from castoff.trainers.configuration.fields import ConfigError, few
from castoff.trainers.task import Task


def parameters_of(task: Task, model: nn.Module) -> list[Any]:
    """The task's parameters or groups, after a check that they are exactly the model's that require a
    gradient.
    """
    names = names_of(model)
    returned = task.parameters(model)
    if isinstance(returned, (Tensor, Mapping, str)) or not isinstance(returned, Iterable):
        raise ConfigError(
            [f"task.parameters: returns {kind_of(returned)}, but must return a list of parameters or groups"]
        )
    parameters: list[Any] = list(returned)
    flat = parameters
    if any(isinstance(group, Mapping) for group in parameters):
        parameters = [_group(number, group) for number, group in enumerate(parameters)]
        flat = [each for group in parameters for each in group["params"]]
    check_complete(flat, names, "task.parameters", "group")
    return parameters


def _group(number: int, group: Any) -> dict[str, Any]:
    """A copy of a parameter group, with its parameters as a list."""
    where = f"task.parameters: group {number}"
    if not isinstance(group, Mapping):
        raise ConfigError(
            [f"{where} is {kind_of(group)}, but others are groups; write all as {{'params': [...]}}"]
        )
    parameters = group.get("params")
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    if isinstance(parameters, (set, frozenset)):
        raise ConfigError([f"{where}: params is a set, which has no order to resume in; write a list"])
    if isinstance(parameters, (Mapping, str)) or not isinstance(parameters, Iterable):
        raise ConfigError([f"{where}: params is {kind_of(parameters)}, but must be a list of parameters"])
    return {**group, "params": list(parameters)}


def names_of(model: nn.Module) -> dict[Tensor, str]:
    """The names of the model's parameters.

    Raises:
        ConfigError: none requires a gradient.
    """
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    if not any(parameter.requires_grad for parameter in names):
        raise ConfigError(["model: has no parameter that could be trained"])
    return names


def check_complete(flat: Sequence[Any], names: Mapping[Tensor, str], where: str, one: str) -> None:
    """Check that these are exactly the model's parameters that require a gradient, each once.

    `where`: the method that returned them; `one`: what each belongs to one of.

    Raises:
        ConfigError: they are not.
    """
    problems = [
        f"{where}: returns {kind_of(each)} in place of a parameter; return parameters, such as "
        "list(model.parameters())"
        for each in flat
        if not isinstance(each, Tensor)
    ]
    if problems:
        raise ConfigError(problems[:1])
    seen: set[Tensor] = set()
    twice = []
    for each in flat:
        if each not in names:
            shape = f"a tensor of shape {tuple(each.shape)}"
            raise ConfigError(
                [
                    f"{where}: returns {shape} that is not a parameter of the model, and so "
                    "would be neither reduced over the ranks nor saved; make it an nn.Parameter of the "
                    "model"
                ]
            )
        if each in seen:
            twice.append(names[each])
        seen.add(each)
    if twice:
        problems.append(f"{where}: returns {few(twice)} twice; each belongs to one {one}")
    left = [name for each, name in names.items() if each.requires_grad and each not in seen]
    if left:
        problems.append(
            f"{where}: leaves out {few(left)}, for which gradients would be computed, reduced "
            "over the ranks and never used; return them too, or call requires_grad_(False) on them in "
            "build_model"
        )
    if problems:
        raise ConfigError(problems)


def check_rate(rate: Any, where: str) -> None:
    """Check that a learning rate is a finite number, or NaN.

    Raises:
        ConfigError: it is not.
    """
    if not isinstance(rate, Real) or isinstance(rate, bool) or math.isinf(rate):
        raise ConfigError([f"{where}: is {rate!r}, but takes a number, such as lr: 0.001 or lr: 1e-3"])


def kind_of(value: Any) -> str:
    """A value's type, in words for a message."""
    return "None" if value is None else f"a {type(value).__name__}"
