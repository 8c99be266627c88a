"""A task's model as training calls it: on its device, compiled, and wrapped for several ranks."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.distributed.device_choice import device_ids
from castoff.trainers.distributed.private_torch import rebuild_buckets
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.task import Task
from castoff.trainers.task.contract import validate_model

logger = logging.getLogger(__name__)

_UNREACHED = re.compile(r"did not receive grad for rank \d+: ([\d ]+)")
_HOOKS = {"bf16": default_hooks.bf16_compress_hook, "fp16": default_hooks.fp16_compress_hook}


def prepared_model(task: Task, config: Config, context: RankContext) -> nn.Module:
    """The task's model on its device, as the optimizer is to see it.

    Raises:
        ConfigError: the task gives none, or BatchNorm cannot be synchronised here.
    """
    model = validate_model(task, task.build_model()).to(context.device)
    return _synchronised_batchnorm(model, context) if config.parallel.sync_batchnorm else model


def has_batchnorm(model: nn.Module) -> bool:
    """Whether a part of it needs two samples to train."""
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    return any(isinstance(module, kinds) for module in model.modules())


def _synchronised_batchnorm(model: nn.Module, context: RankContext) -> nn.Module:
    if context.device.type == "cpu":
        raise ConfigError(
            [
                "parallel.sync_batchnorm: is true, but torch has it on accelerators alone; "
                "leave it out on the CPU"
            ]
        )
    converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    return converted


def compiled(model: nn.Module) -> nn.Module:
    """By torch.compile, for shapes of any size."""
    # Else the shape that comes first is compiled for itself, and rounded otherwise than it is in a run
    # that resumes from where another comes first.
    made: Any = torch.compile(model, dynamic=True)
    assert isinstance(made, nn.Module)
    return made


class _Whole(nn.Module):
    """What DistributedDataParallel sees as one forward pass: all that is computed with a model.

    Gradients are reduced where its own forward pass has prepared that alone. So a network that a task keeps,
    or another method of the model, would be trained by each rank for itself.
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, compute: Callable[[nn.Module], Tensor]) -> Tensor:
        return compute(self.model)


def distributed(model: nn.Module, config: Config, context: RankContext) -> DistributedDataParallel:
    """In DistributedDataParallel, with the configuration's arguments and with buckets that stay as they are.

    It is called with what is to be computed with the model: a function of it that gives a loss.

    Raises:
        ConfigError: torch cannot have it so.
    """
    parallel, micros = config.parallel, config.training.gradient_accumulation_steps
    if parallel.static_graph and micros > 1:
        raise ConfigError(
            [
                "parallel.static_graph: is true, but torch cannot accumulate gradients then, and "
                f"training.gradient_accumulation_steps is {micros}; drop one of the two"
            ]
        )
    ids = device_ids(context.device)
    wrapped = DistributedDataParallel(
        _Whole(model),
        device_ids=ids,
        output_device=parallel.output_device if ids else None,
        find_unused_parameters=parallel.find_unused_parameters,
        gradient_as_bucket_view=parallel.gradient_as_bucket_view,
        static_graph=parallel.static_graph,
        bucket_cap_mb=parallel.bucket_cap_mb,
    )
    if parallel.communication_hook is not None:
        _register(wrapped, parallel.communication_hook)
    if parallel.static_graph:  # is that of the first backward pass, which must be a real one
        if context.world_size > 2:
            logger.warning(
                "parallel.static_graph: resuming from a checkpoint will differ in the last bits from a "
                "run that was not interrupted"
            )
    elif not parallel.find_unused_parameters:
        _settle_buckets(wrapped)
    return wrapped


def unreduced(wrapped: DistributedDataParallel) -> list[int]:
    """Numbers of the parameters that the last backward pass did not reach, so that no gradient was reduced.

    DDP tells of it at the next forward pass alone, when the weights have been changed already.
    """
    try:
        rebuild_buckets(wrapped)
    except RuntimeError as error:
        numbers = _UNREACHED.search(str(error))
        if numbers is None:
            raise
        return [int(number) for number in numbers[1].split()]
    return []


def _register(wrapped: DistributedDataParallel, hook: str) -> None:
    try:
        wrapped.register_comm_hook(None, _HOOKS[hook])
    except TypeError as error:
        problem = f"parallel.communication_hook: is {hook}, but torch has none for this backend ({error}); "
        raise ConfigError([problem + "write fp16, or leave it out"]) from error


class _Everything(nn.Module):
    """Depends on every parameter of a module, in their order."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self) -> Tensor:
        wanted = [
            parameter.sum().real.float() for parameter in self.module.parameters() if parameter.requires_grad
        ]
        return torch.stack(wanted).sum()


def _settle_buckets(wrapped: DistributedDataParallel) -> None:
    """Have DDP's buckets in the order that they keep, before the first step.

    DDP orders them anew after its first backward pass, by when gradients came, and the order decides
    how more than two ranks' gradients are rounded when they are summed. A resumed run from a
    checkpoint would round its first step otherwise than one that was not interrupted.
    """
    inner = wrapped.module
    wrapped.module = _Everything(inner)
    try:
        wrapped().backward()
    finally:
        wrapped.module = inner
    wrapped.zero_grad(set_to_none=True)
