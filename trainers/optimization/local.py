"""The parts of tensors that are sharded over the ranks.

Without sharding, all of this leaves tensors as they are. DTensor is not imported here, since most trainings
have none, and it takes time.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

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


@torch.no_grad()
def whole(value: Any, *, keep: bool) -> Any:
    """A copy of nested containers with whole tensors, on the CPU, in place of sharded ones.

    All ranks must call it. Without `keep`, tensors are gathered for other ranks and dropped here at once.
    """
    if isinstance(value, Tensor):
        full_tensor = getattr(value, "full_tensor", None)
        if full_tensor is None:
            return value
        gathered = full_tensor()
        return gathered.cpu() if keep else None
    if isinstance(value, MutableMapping):
        made: Any = copy.copy(value)  # also a state dict's versions of its modules
        for key, item in value.items():
            made[key] = whole(item, keep=keep)
        return made
    if isinstance(value, (list, tuple)):
        return type(value)([whole(item, keep=keep) for item in value])
    return value


@torch.no_grad()
def sharded_like(full: Any, example: Any) -> Any:
    """This rank's part of a whole tensor, sharded as `example` is; other values as they are.

    It needs no communication, since every rank has the whole tensor.
    """
    if not hasattr(example, "device_mesh") or not isinstance(full, Tensor) or full.shape != example.shape:
        return full
    from torch.distributed.tensor import distribute_tensor

    mesh, places = example.device_mesh, example.placements
    return distribute_tensor(full.to(example.dtype), mesh, places, src_data_rank=None)
