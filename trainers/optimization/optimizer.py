"""Makes the optimizer and a torch scheduler that the configuration names."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError, few
from castoff.trainers.configuration.pyobject import called, resolved
from castoff.trainers.task import Task
from castoff.trainers.task.contract import wrong_arguments

CONFIGURED = "configured"
"""Key in a parameter group: its hyperparameters as they were configured."""


def make_optimizer(config: Config, task: Task, model: nn.Module) -> Optimizer:
    """Call `training.optimizer_type` with the task's parameters or parameter groups.

    Each group also gets `CONFIGURED`, from which `load_optimizer` detects changed hyperparameters.

    Raises:
        ConfigError: there is no such optimizer, it refuses its arguments, or the parameters are not exactly
            the model's that require a gradient.
    """
    training = config.training
    make = called(training.optimizer_type, "training.optimizer_type", "!pyobject torch.optim.AdamW")
    _check_rate(training.optimizer_kwargs.get("lr", 0.0), "training.optimizer_kwargs.lr")
    parameters = _parameters(task, model)
    _check_names(make, "training.optimizer", training.optimizer_args, training.optimizer_kwargs)
    args = resolved(training.optimizer_args, "training.optimizer_args")
    kwargs = resolved(training.optimizer_kwargs, "training.optimizer_kwargs")
    try:
        made = make(parameters, *args, **kwargs)
    except (TypeError, ValueError) as error:
        raise ConfigError([f"training.optimizer_type: {error}"]) from error
    if not isinstance(made, Optimizer):
        raise ConfigError(
            [f"training.optimizer_type: makes {_kind(made)}, which is not a torch.optim.Optimizer"]
        )
    closure = inspect.signature(made.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ConfigError(
            [
                f"training.optimizer_type: {type(made).__name__} computes the loss several times a step "
                "(it takes a closure), which this trainer does not; write another one, such as "
                "torch.optim.AdamW"
            ]
        )
    for number, group in enumerate(made.param_groups):
        _check_rate(group.get("lr"), f"task.parameters: lr of group {number}")
        group[CONFIGURED] = {
            name: value for name, value in group.items() if name != "params" and _plain(value)
        }
    return made


def make_scheduler(config: Config, optimizer: Optimizer) -> LRScheduler | None:
    """Call `training.lr_scheduler_type` with the optimizer; None if it is not set.

    Raises:
        ConfigError: there is no such scheduler, or it refuses its arguments.
    """
    training = config.training
    if training.lr_scheduler_type is None:
        return None
    example = "!pyobject torch.optim.lr_scheduler.CosineAnnealingLR"
    make = called(training.lr_scheduler_type, "training.lr_scheduler_type", example)
    _check_names(make, "training.lr_scheduler", training.lr_scheduler_args, training.lr_scheduler_kwargs)
    args = resolved(training.lr_scheduler_args, "training.lr_scheduler_args")
    kwargs = resolved(training.lr_scheduler_kwargs, "training.lr_scheduler_kwargs")
    try:
        made = make(optimizer, *args, **kwargs)
    except (TypeError, ValueError) as error:
        raise ConfigError([f"training.lr_scheduler_type: {error}"]) from error
    if not isinstance(made, LRScheduler):
        raise ConfigError(
            [
                f"training.lr_scheduler_type: makes {_kind(made)}, which is not a "
                f"torch.optim.lr_scheduler.LRScheduler; write {example}"
            ]
        )
    return made


def load_optimizer(optimizer: Optimizer, state: dict[str, Any]) -> list[str]:
    """Resume from a checkpoint's state, but with hyperparameters that have been reconfigured since.

    Values that were not reconfigured are the checkpoint's, because some change in training: a scheduler's
    momentum, an optimizer's counts. Make `LearningRate` before, which excludes values that a scheduler
    controls. Returns a line for the log for each change.

    Raises:
        ConfigError: the checkpoint's parameter groups do not match.
    """
    now = [group[CONFIGURED] for group in optimizer.param_groups]
    try:
        optimizer.load_state_dict(state)
    except (ValueError, KeyError) as error:
        raise ConfigError(
            [
                f"training.optimizer_type: the checkpoint's optimizer does not fit ({error}); keep optimizer "
                "and task.parameters, or start over with training.fresh: true"
            ]
        ) from error
    changes: dict[str, list[int]] = {}
    for number, (group, new) in enumerate(zip(optimizer.param_groups, now, strict=True)):
        old = group.get(CONFIGURED, {})
        for name, value in new.items():
            if name in old and old[name] == value:
                continue
            group[name] = value
            line = (
                f"training.optimizer_kwargs.{name}: {value} from here on; the checkpoint has {old.get(name)}"
            )
            changes.setdefault(line, []).append(number)
        group[CONFIGURED] = new
    return [
        line if len(numbers) == len(now) else f"{line} (parameter groups {', '.join(map(str, numbers))})"
        for line, numbers in changes.items()
    ]


def _check_names(make: Any, fields: str, arguments: list[Any], by_name: Mapping[str, Any]) -> None:
    """Check the names of arguments. The trainer itself passes the first argument: the parameters, or the
    optimizer.
    """
    problems = wrong_arguments(make, by_name, f"{fields}_kwargs", given=1 + len(arguments))
    if problems:
        raise ConfigError(problems)


def _check_rate(rate: Any, where: str) -> None:
    if not isinstance(rate, Real) or isinstance(rate, bool) or math.isinf(rate):
        raise ConfigError([f"{where}: is {rate!r}, but takes a number, such as lr: 0.001 or lr: 1e-3"])


def _parameters(task: Task, model: nn.Module) -> list[Any]:
    """The task's parameters or groups, after a check that they are exactly the model's that require a
    gradient.
    """
    names: dict[Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    if not any(parameter.requires_grad for parameter in names):
        raise ConfigError(["model: has no parameter that could be trained"])
    returned = task.parameters(model)
    if isinstance(returned, (Tensor, Mapping, str)) or not isinstance(returned, Iterable):
        raise ConfigError(
            [f"task.parameters: returns {_kind(returned)}, but must return a list of parameters or groups"]
        )
    parameters: list[Any] = list(returned)
    flat = parameters
    if any(isinstance(group, Mapping) for group in parameters):
        parameters = [_group(number, group) for number, group in enumerate(parameters)]
        flat = [each for group in parameters for each in group["params"]]
    problems = [
        f"task.parameters: returns {_kind(each)} in place of a parameter; return parameters, such as "
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
                    f"task.parameters: returns {shape} that is not a parameter of the model, and so "
                    "would be neither reduced over the ranks nor saved; make it an nn.Parameter of the "
                    "model"
                ]
            )
        if each in seen:
            twice.append(names[each])
        seen.add(each)
    if twice:
        problems.append(f"task.parameters: returns {few(twice)} twice; each belongs to one group")
    left = [name for each, name in names.items() if each.requires_grad and each not in seen]
    if left:
        problems.append(
            f"task.parameters: leaves out {few(left)}, for which gradients would be computed, reduced "
            "over the ranks and never used; return them too, or call requires_grad_(False) on them in "
            "build_model"
        )
    if problems:
        raise ConfigError(problems)
    return parameters


def _group(number: int, group: Any) -> dict[str, Any]:
    """A copy of a parameter group, with its parameters as a list."""
    where = f"task.parameters: group {number}"
    if not isinstance(group, Mapping):
        raise ConfigError(
            [f"{where} is {_kind(group)}, but others are groups; write all as {{'params': [...]}}"]
        )
    parameters = group.get("params")
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    if isinstance(parameters, (set, frozenset)):
        raise ConfigError([f"{where}: params is a set, which has no order to resume in; write a list"])
    if isinstance(parameters, (Mapping, str)) or not isinstance(parameters, Iterable):
        raise ConfigError([f"{where}: params is {_kind(parameters)}, but must be a list of parameters"])
    return {**group, "params": list(parameters)}


def _plain(value: Any) -> bool:
    """Whether a group's entry is a hyperparameter: a number, flag or string, or a list or tuple of them."""
    if isinstance(value, (list, tuple)):
        return all(_plain(each) for each in value)
    return value is None or isinstance(value, (int, float, str))


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
