"""The norm of a step's gradient, and whether it is finite, over the memory in which DDP keeps gradients."""

from __future__ import annotations

import cmath
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from castoff.trainers.distributed.private_torch import norms


class GradientNorm:
    """The Euclidean norm of all gradients of some parameters together, for which nothing waits.

    `in_buckets`: they are views of DDP's buckets, which stay where they are. One reduction for a bucket
    then takes the place of one for each parameter.
    """

    def __init__(self, parameters: Sequence[Tensor], *, in_buckets: bool):
        self._alike = len({(parameter.device, parameter.dtype) for parameter in parameters}) == 1
        self._in_buckets = in_buckets
        self._addresses: list[int] = []
        self._buckets: list[Tensor] = []

    def __call__(self, gradients: list[Tensor]) -> Tensor:
        """A number on their device; 0 if there are none."""
        gradients = self._in_memory(gradients)
        if not gradients or not self._alike:
            return nn.utils.get_total_norm(gradients)
        # As get_total_norm, most of whose time goes into sorting them by device and type.
        all_of_them = gradients[0] if len(gradients) == 1 else torch.stack(list(norms(gradients)))
        norm: Tensor = torch.linalg.vector_norm(all_of_them)
        return norm

    def sums_are_finite(self, gradients: list[Tensor]) -> bool:
        """Whether the sum of each gradient is finite, which takes less than half of the norm's time on a CPU.

        One number that is not finite makes its sum so. Finite ones may have a sum that overflows: if this is
        False, the norm decides.
        """
        return all(cmath.isfinite(each.sum().item()) for each in self._in_memory(gradients))

    def _in_memory(self, gradients: list[Tensor]) -> list[Tensor]:
        if self._in_buckets:
            addresses = [gradient.data_ptr() for gradient in gradients]
            if addresses != self._addresses:
                self._addresses, self._buckets = addresses, _memory_of(gradients)
            return self._buckets or gradients
        return gradients


def _memory_of(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The flat tensors in which these tensors lie, if nothing else lies there; else none."""
    flat: dict[int, Tensor] = {}
    elements: dict[int, int] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        at = storage.data_ptr()
        flat.setdefault(at, torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage))
        elements[at] = elements.get(at, 0) + tensor.numel()
    theirs_alone = all(flat[at].numel() == count for at, count in elements.items())
    return list(flat.values()) if theirs_alone else []


class UnreadNorm:
    """A norm on its way from the device, and the losses that it came from."""

    def __init__(self, step: int, norm: Tensor, losses: list[Tensor]):
        self.step = step
        self.losses = losses
        self._copy = torch.empty((), dtype=norm.dtype, pin_memory=norm.device.type == "cuda")
        self._copy.copy_(norm, non_blocking=True)
        self._arrived = torch.Event(norm.device)
        self._arrived.record()

    def finite(self) -> bool:
        """Whether it was a number; waits for the step that it belongs to, and for none after it."""
        self._arrived.synchronize()
        return bool(torch.isfinite(self._copy))
