"""Makes the optimizer or optimizers of a training, and a torch scheduler that the configuration names."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError, few
from castoff.trainers.configuration.pyobject import called, resolved
from castoff.trainers.optimization.optimizers import OPTIMIZER, Optimizers
from castoff.trainers.optimization.parameters import (
    check_complete,
    check_rate,
    kind_of,
    names_of,
    parameters_of,
)
from castoff.trainers.task import Task
from castoff.trainers.task.contract import wrong_arguments

CONFIGURED = "configured"
"""Key in a parameter group: its hyperparameters as they were configured."""

IMPLEMENTATIONS = ("fused", "foreach", "capturable", "differentiable")
"""Arguments that select one of torch's implementations of an optimizer."""


def make_optimizer(config: Config, task: Task, model: nn.Module) -> Optimizer:
    """The task's optimizers, or else `training.optimizer_type` with the task's parameters or groups.

    Each group also gets `CONFIGURED`, from which `load_optimizer` detects changed hyperparameters.

    Raises:
        ConfigError: there is no such optimizer, it refuses its arguments, or the parameters are not exactly
            the model's that require a gradient.
    """
    if isinstance(task.turns, str):
        raise ConfigError([f'task.turns: is {task.turns!r}; it takes a tuple of names, ("{task.turns}",)'])
    returned = task.optimizers(model)
    if returned is None and task.turns:
        raise ConfigError([f"task.turns: is {list(task.turns)!r}, but task.optimizers returns no optimizers"])
    made = _configured(config, task, model) if returned is None else _of_task(returned, config, task, model)
    for number, group in enumerate(made.param_groups):
        whose = f" ({group[OPTIMIZER]})" if OPTIMIZER in group else ""
        field = "task.parameters" if returned is None else "task.optimizers"
        check_rate(group.get("lr"), f"{field}: lr of group {number}{whose}")
        group[CONFIGURED] = {
            name: value for name, value in group.items() if name != "params" and _plain(value)
        }
    return made


def _configured(config: Config, task: Task, model: nn.Module) -> Optimizer:
    """Call `training.optimizer_type`."""
    training = config.training
    if training.optimizer_type is None:
        raise ConfigError(
            [
                "training.optimizer_type: is missing; write !pyobject torch.optim.AdamW, say, or define "
                f"{type(task).__qualname__}.optimizers"
            ]
        )
    make = called(training.optimizer_type, "training.optimizer_type", "!pyobject torch.optim.AdamW")
    check_rate(training.optimizer_kwargs.get("lr", 0.0), "training.optimizer_kwargs.lr")
    parameters = parameters_of(task, model)
    _check_names(make, "training.optimizer", training.optimizer_args, training.optimizer_kwargs)
    args = resolved(training.optimizer_args, "training.optimizer_args")
    kwargs = resolved(training.optimizer_kwargs, "training.optimizer_kwargs")
    if _can_fuse(make, parameters, kwargs):
        kwargs = {**kwargs, "fused": True}
    try:
        made = make(parameters, *args, **kwargs)
    except (TypeError, ValueError) as error:
        raise ConfigError([f"training.optimizer_type: {error}"]) from error
    if not isinstance(made, Optimizer):
        raise ConfigError(
            [f"training.optimizer_type: makes {kind_of(made)}, which is not a torch.optim.Optimizer"]
        )
    _check_closure(made, "training.optimizer_type")
    return made


def _of_task(returned: Any, config: Config, task: Task, model: nn.Module) -> Optimizers:
    """The optimizers that a task returned, as one."""
    where, training = "task.optimizers", config.training
    if training.optimizer_type is not None or training.optimizer_kwargs or training.optimizer_args:
        raise ConfigError(
            [
                f"training.optimizer_type: is set, but {type(task).__qualname__}.optimizers makes the "
                "optimizers; drop it and optimizer_kwargs, and pass to the task what they take"
            ]
        )
    each = {"optimizer": returned} if isinstance(returned, Optimizer) else returned
    if not isinstance(each, Mapping) or not each or not all(isinstance(name, str) for name in each):
        raise ConfigError(
            [f"{where}: returns {kind_of(returned)}; return an optimizer, or several in a dict by name"]
        )
    for name, one in each.items():
        if not isinstance(one, Optimizer):
            raise ConfigError(
                [f"{where}: returns {kind_of(one)} for {name}, which is not a torch.optim.Optimizer"]
            )
        _check_closure(one, f"{where}: {name}")
    if task.turns and set(task.turns) != set(each):
        raise ConfigError(
            [f"task.turns: is {list(task.turns)!r}, but must name all of the optimizers {list(each)!r}"]
        )
    flat = [one for optimizer in each.values() for group in optimizer.param_groups for one in group["params"]]
    check_complete(flat, names_of(model), where, "optimizer")
    return Optimizers(each)


def _check_closure(optimizer: Optimizer, field: str) -> None:
    """Check that an optimizer's step needs no closure."""
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ConfigError(
            [
                f"{field}: {type(optimizer).__name__} computes the loss several times a step "
                "(it takes a closure), which this trainer does not; write another one, such as "
                "torch.optim.AdamW"
            ]
        )


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
                f"training.lr_scheduler_type: makes {kind_of(made)}, which is not a "
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
    owners, before = (
        list(dict.fromkeys(str(group.get(OPTIMIZER, "the configured one")) for group in groups))
        for groups in (optimizer.param_groups, state["param_groups"])
    )
    if owners != before:
        raise ConfigError(
            [
                f"task.optimizers: the optimizers are {few(owners)}, but the checkpoint's are {few(before)}; "
                "keep them, or start over with training.fresh: true"
            ]
        )
    if len(now) == len(state["param_groups"]):
        # torch decides by these where and as what to load the counts of steps.
        ours = [{name: new[name] for name in IMPLEMENTATIONS if name in new} for new in now]
        groups = [{**old, **new} for old, new in zip(state["param_groups"], ours, strict=True)]
        state = {**state, "param_groups": groups}
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
            field = f"task.optimizers: {group[OPTIMIZER]}: {name}" if OPTIMIZER in group else None
            field = field or f"training.optimizer_kwargs.{name}"
            line = f"{field}: {value} from here on; the checkpoint has {old.get(name)}"
            changes.setdefault(line, []).append(number)
        group[CONFIGURED] = new
    return [
        line if len(numbers) == len(now) else f"{line} (parameter groups {', '.join(map(str, numbers))})"
        for line, numbers in changes.items()
    ]


def _can_fuse(make: Any, parameters: list[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether to choose torch's fused Adam or AdamW, which on a CPU takes a third of the default's time.

    On accelerators, torch's own default is kept. The choice depends on the configuration and the parameters
    alone, so a resumed run makes the same one.
    """
    if make not in (torch.optim.Adam, torch.optim.AdamW) or any(name in kwargs for name in IMPLEMENTATIONS):
        return False
    groups = [each for each in parameters if isinstance(each, dict)]
    if any(name in group for group in groups for name in IMPLEMENTATIONS):
        return False
    tensors = [tensor for group in groups for tensor in group["params"]] if groups else parameters
    return all(
        tensor.device.type == "cpu" and tensor.is_floating_point() and _is_dense(tensor) for tensor in tensors
    )


def _is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill a block of memory, in any order of dimensions, without gaps or overlap.

    The fused implementation reads a parameter as such a block whatever its strides.
    """
    filled = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride != filled:
                return False
            filled *= size
    return True


def _check_names(make: Any, fields: str, arguments: list[Any], by_name: Mapping[str, Any]) -> None:
    """Check the names of arguments. The trainer itself passes the first argument: the parameters, or the
    optimizer.
    """
    problems = wrong_arguments(make, by_name, f"{fields}_kwargs", given=1 + len(arguments))
    if problems:
        raise ConfigError(problems)


def _plain(value: Any) -> bool:
    """Whether a group's entry is a hyperparameter: a number, flag or string, or a list or tuple of them."""
    if isinstance(value, (list, tuple)):
        return all(_plain(each) for each in value)
    return value is None or isinstance(value, (int, float, str))
