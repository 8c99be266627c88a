"""Metrics that compare ranks and devices, and norms of gradients and weights in each part of the model.

They are computed only at log steps, and ranks send them in the same message as the sums of the loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from castoff.trainers.configuration.config import Monitoring
from castoff.trainers.distributed.devices import Use
from castoff.trainers.optimization.engine import Engine
from castoff.trainers.optimization.local import local, local_gradients

_EACH_UP_TO = 16
"""The most ranks for which each rank's loss is reported."""


def columns(values: Sequence[float], rank: int, world_size: int) -> list[float]:
    """A column of `world_size` numbers for each value, 0 except at `rank`, so that a sum over ranks gathers
    them.
    """
    column_values = [0.0] * (len(values) * world_size)
    column_values[rank::world_size] = values
    return column_values


def gathered(summed: Sequence[float], world_size: int) -> list[list[float]]:
    """All ranks' numbers for each value, from the summed columns."""
    return [list(summed[at : at + world_size]) for at in range(0, len(summed), world_size)]


def losses_of_ranks(losses: Sequence[float]) -> dict[str, float]:
    """The spread of the ranks' mean losses; empty for one rank. A rank without items has the loss NaN."""
    finite = [each for each in losses if not math.isnan(each)]
    if len(losses) < 2 or not finite:
        return {}
    metrics = {"ranks/loss_min": min(finite), "ranks/loss_max": max(finite)}
    if len(losses) <= _EACH_UP_TO:
        metrics |= {f"ranks/loss_{rank}": loss for rank, loss in enumerate(losses)}
    return metrics


def devices_of_ranks(uses: Sequence[Use]) -> dict[str, float]:
    """The largest memory of a rank, its balance over ranks, and the devices' utilization, if known."""
    memory, allocated, reserved, utilization = (
        [each for each in column if not math.isnan(each)] for column in zip(*uses, strict=True)
    )
    metrics = {"memory_gb": max(memory)}
    if allocated:
        metrics |= {"memory_allocated_gb": max(allocated), "memory_reserved_gb": max(reserved)}
    if len(memory) > 1 and max(memory):
        metrics["memory_balance"] = min(memory) / max(memory)
    if utilization:
        metrics["utilization"] = sum(utilization) / len(utilization)
        metrics["utilization_min"] = min(utilization)
    return metrics


class Norms:
    """Norms of the gradients and weights of a model's parts, if `monitoring` asks for them."""

    def __init__(self, asked: Monitoring):
        self._asked = asked

    def of(self, engine: Engine) -> Iterator[tuple[str, Tensor]]:
        """(name, norm on the device): of gradients after clipping, and of weights after the step. If weights
        are sharded, all ranks must call it.
        """
        if not (self._asked.log_gradients or self._asked.log_weights):
            return
        norm: Callable[[list[Tensor]], Tensor] = nn.utils.get_total_norm
        if engine.strategy.sharded:
            norm = engine.strategy.norm
        with torch.no_grad():
            for name, part in parts_of(engine.bare).items():
                gradients = local_gradients(part)
                if self._asked.log_gradients and gradients:
                    yield f"gradients/{name}", norm(gradients)
                if self._asked.log_weights:
                    yield f"weights/{name}", norm([local(each) for each in part])


def parts_of(model: nn.Module) -> Mapping[str, list[Tensor]]:
    """The trained parameters by the part of the model that contains them: `embedding`, `blocks.0`."""
    parts: dict[str, list[Tensor]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            parts.setdefault(_part(name), []).append(parameter)
    return parts


def _part(name: str) -> str:
    first, _, rest = name.partition(".")
    second, inside, _ = rest.partition(".")
    return f"{first}.{second}" if inside and second.isdigit() else first
