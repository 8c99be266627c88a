"""Linear layers for numbers of different magnitudes, which are normalised first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.gnn.models.linear_sequential import LinearSequential


class ScaledSequential(LinearSequential):
    """A LinearSequential whose input is normalised first: (x - `means`) / `spreads`.

    Both are fixed, so they are the same in every batch, in training and evaluation.

    Raises:
        ConfigError: their number is not the first layer's width, or a spread is not above 0.
    """

    means: Tensor
    spreads: Tensor

    def __init__(self, dims: Any, means: Sequence[float], spreads: Sequence[float], **kwargs: Any):
        super().__init__(dims, **kwargs)
        problems = [
            f"{name}: is {values!r}, but takes {self.in_dim} numbers{more}, as many as the first layer takes"
            for name, values, more in (("means", means, ""), ("spreads", spreads, " above 0"))
            if not _numbers(values, self.in_dim) or (more and min(values) <= 0)
        ]
        if problems:
            raise ConfigError(problems)
        self.register_buffer("means", torch.tensor(means, dtype=torch.float32))
        self.register_buffer("spreads", torch.tensor(spreads, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, first width) to (rows, last width)."""
        return super().forward((x - self.means) / self.spreads)


def _numbers(values: Any, count: int) -> bool:
    return (
        isinstance(values, (list, tuple))
        and len(values) == count
        and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
    )
