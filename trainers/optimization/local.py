"""The parts of tensors that are sharded over the ranks.

Without sharding, all of this leaves tensors as they are. DTensor is not imported here, since most trainings
have none, and it takes time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor


@torch.no_grad()
def local(tensor: Tensor) -> Tensor:
    """This rank's part of a sharded tensor, in the same memory; other tensors as they are."""
    to_local: Callable[[], Tensor] | None = getattr(tensor, "to_local", None)
    return tensor if to_local is None else to_local()


def local_gradients(parameters: Iterable[Tensor]) -> list[Tensor]:
    """This rank's parts of the gradients that exist."""
    return [local(parameter.grad) for parameter in parameters if parameter.grad is not None]
