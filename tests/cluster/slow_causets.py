"""The criterion for causal sets with time to interrupt it; by itself, because loading it takes seconds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from castoff.trainers.gnn.criteria import manifold_and_dimension
from tests.cluster.slow import Pace

_pace = Pace()


def compute_loss(outputs: Any, batch: Any) -> Tensor:
    """The built-in one; slow while it trains."""
    if torch.is_grad_enabled():
        _pace.step()
    return manifold_and_dimension(outputs, batch)
