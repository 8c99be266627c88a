"""Whether ranks and devices are alike, and the size of gradients and weights in each part of the model.

All of this is computed only at log steps, and what the ranks report is sent along with the loss sums, in
the same message.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from castoff.trainers.configuration.config import Monitoring
from castoff.trainers.distributed.devices import Use

_EACH_UP_TO = 16
"""Up to so many ranks are reported one by one."""


def columns(values: Sequence[float], rank: int, world_size: int) -> list[float]:
    """A place for each rank for each value, in which the others add 0: so one sum gathers them."""
    found = [0.0] * (len(values) * world_size)
    found[rank::world_size] = values
    return found


def gathered(summed: Sequence[float], world_size: int) -> list[list[float]]:
    """Each value of all ranks, from the sums of their columns."""
    return [list(summed[at : at + world_size]) for at in range(0, len(summed), world_size)]


def losses_of_ranks(losses: Sequence[float]) -> dict[str, float]:
    """How far the ranks' mean losses lie apart; of one rank nothing, and NaN of one that had no item."""
    known = [each for each in losses if not math.isnan(each)]
    if len(losses) < 2 or not known:
        return {}
    found = {"ranks/loss_min": min(known), "ranks/loss_max": max(known)}
    if len(losses) <= _EACH_UP_TO:
        found |= {f"ranks/loss_{rank}": loss for rank, loss in enumerate(losses)}
    return found


def devices_of_ranks(uses: Sequence[Use]) -> dict[str, float]:
    """The memory of the rank that has most, how even it is, and how busy devices are, as far as they tell."""
    memory, allocated, reserved, utilization = (
        [each for each in column if not math.isnan(each)] for column in zip(*uses, strict=True)
    )
    found = {"memory_gb": max(memory)}
    if allocated:
        found |= {"memory_allocated_gb": max(allocated), "memory_reserved_gb": max(reserved)}
    if len(memory) > 1 and max(memory):
        found["memory_balance"] = min(memory) / max(memory)
    if utilization:
        found["utilization"] = sum(utilization) / len(utilization)
        found["utilization_min"] = min(utilization)
    return found


class Norms:
    """Norms of a model's gradients and weights by its parts, as far as they are asked for."""

    def __init__(self, asked: Monitoring):
        self._asked = asked

    def of(self, model: nn.Module) -> Iterator[tuple[str, Tensor]]:
        """(name, norm on the device): gradients as the optimizer took them, weights after that."""
        if not (self._asked.log_gradients or self._asked.log_weights):
            return
        with torch.no_grad():
            for name, part in parts_of(model).items():
                gradients = [each.grad for each in part if each.grad is not None]
                if self._asked.log_gradients and gradients:
                    yield f"gradients/{name}", nn.utils.get_total_norm(gradients)
                if self._asked.log_weights:
                    yield f"weights/{name}", nn.utils.get_total_norm(part)


def parts_of(model: nn.Module) -> Mapping[str, list[Tensor]]:
    """The parameters that are trained by the part of the model that they are in: `embedding`, `blocks.0`."""
    found: dict[str, list[Tensor]] = {}
    for name, each in model.named_parameters():
        if each.requires_grad:
            found.setdefault(_part(name), []).append(each)
    return found


def _part(name: str) -> str:
    first, _, rest = name.partition(".")
    second, inside, _ = rest.partition(".")
    return f"{first}.{second}" if inside and second.isdigit() else first
