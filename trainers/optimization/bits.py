"""Sums of the bits of tensors, by which ranks compare them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bit_sums(tensors: Iterable[Tensor]) -> Tensor:
    """For each tensor, the sum of its bits read as integers, computed on its device in one pass."""
    return torch.stack([_bits(tensor) for tensor in tensors])


def digest(sums: Tensor) -> Tensor:
    """A single number that depends on several and on their order."""
    odd = torch.arange(1, 2 * len(sums), 2, device=sums.device)
    return (sums * odd).sum()[None]


def _bits(tensor: Tensor) -> Tensor:
    flat = tensor.detach().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat.resolve_conj()).reshape(-1)
    # Eight bytes at a time, since torch would convert smaller integers to int64 before it sums them.
    together = 8 // flat.itemsize
    whole = 0 if flat.storage_offset() % together else len(flat) - len(flat) % together
    rest = flat[whole:].view(_WORDS[flat.itemsize]).sum(dtype=torch.int64)
    return rest + flat[:whole].view(torch.int64).sum() if whole else rest
