"""How several tensors become one: poolings side by side, or embeddings and graph features.

Each takes a list of tensors (rows, numbers), or several tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def cat(*tensors: Any) -> Tensor:
    """Concatenate tensors: (rows, the sum of their widths)."""
    return torch.cat(list(_each(tensors)), dim=1)


def sum(*tensors: Any) -> Tensor:
    """The elementwise sum."""
    return torch.stack(list(_each(tensors))).sum(0)


def mean(*tensors: Any) -> Tensor:
    """The elementwise mean."""
    return torch.stack(list(_each(tensors))).mean(0)


def max(*tensors: Any) -> Tensor:
    """The elementwise maximum."""
    return torch.stack(list(_each(tensors))).amax(0)


def _each(tensors: Sequence[Any]) -> Sequence[Tensor]:
    """The tensors, passed as a list or one by one."""
    return tensors if isinstance(tensors[0], Tensor) else tensors[0]
