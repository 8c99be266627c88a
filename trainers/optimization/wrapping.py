"""Prepares a task's model for training: moves, compiles and wraps it for several ranks."""

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
from castoff.trainers.optimization.activation_checkpointing import checkpoint_activations
from castoff.trainers.task import Task
from castoff.trainers.task.contract import validate_model

logger = logging.getLogger(__name__)

Reducer = Callable[[Callable[[nn.Module], Tensor]], Tensor]
"""Computes a loss by a function of the model, so that its gradients are reduced over the ranks."""

_UNREACHED = re.compile(r"did not receive grad for rank \d+: ([\d ]+)")
_HOOKS = {"bf16": default_hooks.bf16_compress_hook, "fp16": default_hooks.fp16_compress_hook}


def prepared_model(task: Task, config: Config, context: RankContext) -> nn.Module:
    """Build the task's model and move it to its device, with synchronised BatchNorm if configured.

    A model that will be sharded stays on the CPU, so that no device ever holds all of it.

    Raises:
        ConfigError: the task returns no model, BatchNorm cannot be synchronised on this device, or no module
            has a name in `training.activation_checkpointing`.
    """
    model = validate_model(task, task.build_model())
    if config.parallel.strategy == "ddp" or not context.distributed:
        model = model.to(context.device)
    if config.parallel.sync_batchnorm:
        model = _synchronised_batchnorm(model, context)
    checkpoint_activations(model, config.training.activation_checkpointing)
    return model


def has_batchnorm(model: nn.Module) -> bool:
    """Whether the model has BatchNorm, which needs two samples to train."""
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    return any(isinstance(module, kinds) for module in model.modules())


def _synchronised_batchnorm(model: nn.Module, context: RankContext) -> nn.Module:
    if context.device.type == "cpu":
        raise ConfigError(
            [
                "parallel.sync_batchnorm: is true, but torch has it only on accelerators; leave it out "
                "on the CPU"
            ]
        )
    converted: nn.Module = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    return converted


def compiled(model: nn.Module) -> nn.Module:
    """Compile a model with dynamic shapes."""
    # Otherwise torch specialises on the first shape, which then rounds differently than in a resumed run that
    # starts with another shape.
    made: Any = torch.compile(model, dynamic=True)
    assert isinstance(made, nn.Module)
    return made


class Whole(nn.Module):
    """A module whose forward pass is any computation with a model, so that DistributedDataParallel or FSDP
    covers all of it.

    DDP reduces gradients only of its own forward pass. A network that a task keeps, or another method of the
    model, would otherwise be trained separately on each rank.
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, compute: Callable[[nn.Module], Tensor]) -> Tensor:
        """Compute a loss with the model."""
        return compute(self.model)


def distributed(model: nn.Module, config: Config, context: RankContext) -> DistributedDataParallel:
    """Wrap a model in DistributedDataParallel, with the configuration's arguments and fixed buckets.

    The wrapped module is called with a function of the model that returns a loss.

    Raises:
        ConfigError: torch does not support these settings.
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
        Whole(model),
        device_ids=ids,
        output_device=parallel.output_device if ids else None,
        find_unused_parameters=parallel.find_unused_parameters,
        gradient_as_bucket_view=parallel.gradient_as_bucket_view,
        static_graph=parallel.static_graph,
        bucket_cap_mb=parallel.bucket_cap_mb,
    )
    if parallel.communication_hook is not None:
        _register(wrapped, parallel.communication_hook)
    if parallel.static_graph:  # recorded in the first backward pass, so that must be a real one
        if context.world_size > 2:
            logger.warning(
                "parallel.static_graph: resuming from a checkpoint will differ in the last bits from a "
                "run that was not interrupted"
            )
    elif not parallel.find_unused_parameters:
        settle_buckets(wrapped)
    return wrapped


def unreduced(wrapped: DistributedDataParallel) -> list[int]:
    """Indices of the parameters that the last backward pass did not reach, so that DDP did not reduce
    gradients.

    DDP itself reports this only at the next forward pass, after the weights have changed.
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
    """A module whose output depends on every parameter of another one, in their order."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self) -> Tensor:
        wanted = [
            parameter.sum().real.float() for parameter in self.module.parameters() if parameter.requires_grad
        ]
        return torch.stack(wanted).sum()


def settle_buckets(wrapped: DistributedDataParallel) -> None:
    """Make DDP build its final buckets before the first step.

    DDP rebuilds its buckets after its first backward pass, in the order in which gradients arrived, and this
    order decides how the sum over more than two ranks is rounded. Without this, a resumed run would round its
    first step differently from an uninterrupted one.
    """
    inner = wrapped.module
    wrapped.module = _Everything(inner)
    try:
        wrapped().backward()
    finally:
        wrapped.module = inner
    wrapped.zero_grad(set_to_none=True)
