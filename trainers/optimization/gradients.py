"""The norm of a step's gradient, taken over the memory that DDP lays gradients in where it can be."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class GradientNorm:
    """The Euclidean norm of all gradients of some parameters together, for which nothing waits.

    `in_buckets`: they are views of DDP's buckets, which stay where they are. One reduction for a bucket
    then takes the place of one for each parameter.
    """

    def __init__(self, parameters: Sequence[Tensor], *, in_buckets: bool):
        self._alike = len({(each.device, each.dtype) for each in parameters}) == 1
        self._in_buckets = in_buckets
        self._addresses: list[int] = []
        self._buckets: list[Tensor] = []

    def __call__(self, gradients: list[Tensor]) -> Tensor:
        """A number on their device; 0 if there are none."""
        if self._in_buckets:
            addresses = [each.data_ptr() for each in gradients]
            if addresses != self._addresses:
                self._addresses, self._buckets = addresses, _memory_of(gradients)
            gradients = self._buckets or gradients
        if not gradients or not self._alike:
            return nn.utils.get_total_norm(gradients)
        # As get_total_norm, most of whose time goes into sorting them by device and type.
        all_of_them = gradients[0] if len(gradients) == 1 else torch.stack(torch._foreach_norm(gradients))
        norm: Tensor = torch.linalg.vector_norm(all_of_them)
        return norm


def _memory_of(tensors: Sequence[Tensor]) -> list[Tensor]:
    """What tensors lie in, as flat ones, if nothing else lies there; else nothing."""
    flat: dict[int, Tensor] = {}
    elements: dict[int, int] = {}
    for each in tensors:
        storage = each.untyped_storage()
        at = storage.data_ptr()
        flat.setdefault(at, torch.empty(0, dtype=each.dtype, device=each.device).set_(storage))
        elements[at] = elements.get(at, 0) + each.numel()
    theirs_alone = all(flat[at].numel() == count for at, count in elements.items())
    return list(flat.values()) if theirs_alone else []
