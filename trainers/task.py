"""What a user brings: a model, data, and what to make of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor, nn

Sum: TypeAlias = "tuple[Tensor | float, Tensor | float]"
"""(sum over samples, number of samples); sums over ranks of both give the exact mean."""


@dataclass(frozen=True)
class Loss:
    """A batch's training loss, as a sum, so that batches of any size weigh what they should."""

    total: Tensor
    """Sum over the batch's items; what is differentiated."""
    count: int
    """Items in the sum: samples, or tokens, or whatever the loss is a mean over."""
    metrics: Mapping[str, Tensor | float] = field(default_factory=dict)
    """Sums over the same items, for the log."""


class Splits(NamedTuple):
    """The three data sets; any map-style torch data set will do."""

    train: Any
    validation: Any
    test: Any


class Task(Protocol):
    """What is trained. Inherit from it for the defaults, or write all five methods.

    Every method is called on every rank and must do the same there: what is random comes from
    torch's, numpy's or Python's global generators, which the trainer seeds.
    """

    counts_vary: bool = False
    """Whether ranks' `Loss.count` may differ in a step although their batches are equally long.

    True costs one small message a step.
    """

    def build_model(self) -> nn.Module:
        """The model, on the CPU; the same on all ranks, because the trainer seeds them alike."""
        ...

    def build_data(self) -> Splits:
        """The three data sets; the same on all ranks."""
        ...

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """The training loss of a batch that is on the device already."""
        ...

    def evaluate(self, model: nn.Module, batch: Any) -> Mapping[str, Sum]:
        """Sums of each measure over a batch; default: the training loss and its metrics.

        Runs under `torch.no_grad()` in eval mode, on the bare module.
        """
        loss = self.loss(model, batch)
        return {
            "loss": (loss.total, loss.count),
            **{name: (total, loss.count) for name, total in loss.metrics.items()},
        }

    def collate(self, samples: list[Any]) -> Any:
        """A batch of samples; default: torch's."""
        return torch.utils.data.default_collate(samples)


def move(batch: Any, device: torch.device) -> Any:
    """A batch on a device: tensors, what has a `to` of its own, and containers of these."""
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(move(item, device) for item in batch))
    if isinstance(batch, (list, tuple)):
        return type(batch)(move(item, device) for item in batch)
    if isinstance(batch, Mapping):
        return {key: move(item, device) for key, item in batch.items()}
    if hasattr(batch, "to"):  # torch_geometric's Data
        return batch.to(device, non_blocking=True)
    return batch
