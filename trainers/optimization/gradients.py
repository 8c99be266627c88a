"""The norm of a step's gradient, whether it is finite, and its limit."""

from __future__ import annotations

import cmath
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from castoff.trainers.distributed.private_torch import multiply_all, norms
from castoff.trainers.distributed.process_group import RankContext


class GradientNorm:
    """Computes the Euclidean norm of all gradients together, without waiting for the device.

    `in_buckets`: gradients are views of DDP's buckets, whose addresses do not change. Then one reduction per
    bucket replaces one per parameter.
    """

    def __init__(self, parameters: Sequence[Tensor], *, in_buckets: bool):
        self._alike = len({(parameter.device, parameter.dtype) for parameter in parameters}) == 1
        self._in_buckets = in_buckets
        self._addresses: list[int] = []
        self._buckets: list[Tensor] = []

    def __call__(self, gradients: list[Tensor]) -> Tensor:
        """The norm, a number on the gradients' device; 0 if there are none."""
        gradients = self._in_memory(gradients)
        if not gradients or not self._alike:
            return nn.utils.get_total_norm(gradients)
        # Like get_total_norm, which spends most of its time sorting tensors by device and type.
        per_tensor = gradients[0] if len(gradients) == 1 else torch.stack(list(norms(gradients)))
        norm: Tensor = torch.linalg.vector_norm(per_tensor)
        return norm

    def sums_are_finite(self, gradients: list[Tensor]) -> bool:
        """Whether each gradient's sum is finite, which takes less than half of the norm's time on a CPU.

        A non-finite number makes the sum non-finite. The sum of finite numbers may overflow, so False must be
        confirmed by the norm.
        """
        return all(cmath.isfinite(each.sum().item()) for each in self._in_memory(gradients))

    def _in_memory(self, gradients: list[Tensor]) -> list[Tensor]:
        if self._in_buckets:
            addresses = [gradient.data_ptr() for gradient in gradients]
            if addresses != self._addresses:
                self._addresses, self._buckets = addresses, _memory_of(gradients)
            return self._buckets or gradients
        return gradients


class ShardedNorm:
    """The norm of gradients of which each rank has a part; all ranks must call it.

    `parts`: the number of ranks that together have all parts. Other ranks have the same parts again.
    """

    def __init__(self, context: RankContext, parts: int):
        self._context = context
        self._parts = parts

    def __call__(self, gradients: list[Tensor]) -> Tensor:
        """The norm of the whole gradient, the same to the bit on all ranks."""
        # A gradient that is a single number is whole on each rank.
        mine = [each for each in gradients if each.dim() or self._context.rank % self._parts == 0]
        norm: Tensor = torch.linalg.vector_norm(torch.stack(list(norms(mine)))) if mine else torch.zeros(())
        copies = self._context.world_size // self._parts
        squares = self._context.sum(norm.to(_wide(self._context.device)) ** 2)
        return (squares / copies).sqrt().to(norm.dtype)

    def sums_are_finite(self, gradients: list[Tensor]) -> bool:
        """Whether the sum of each gradient's parts is finite, on all ranks."""
        return self._context.everywhere(all(cmath.isfinite(each.sum().item()) for each in gradients))


def clipping(limit: float, norm: Tensor) -> Tensor:
    """The factor, at most 1, that scales gradients of this norm down to `limit`."""
    return (limit / (norm + 1e-6)).clamp(max=1.0)


def multiply(gradients: list[Tensor], factor: Tensor) -> None:
    """Multiply gradients in one pass over them; on a CPU in none if the factor is 1."""
    if not gradients or (factor.device.type == "cpu" and factor.item() == 1.0):
        return  # without gradients `Weights.check_reached` raises an error
    double = any(gradient.dtype in (torch.float64, torch.complex128) for gradient in gradients)
    multiply_all(gradients, factor.to(torch.float64 if double else torch.float32))


def _wide(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64


def _memory_of(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Flat tensors over the storages of these tensors, if nothing else is in the storages; else an empty
    list.
    """
    flat: dict[int, Tensor] = {}
    elements: dict[int, int] = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
        flat.setdefault(address, torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(storage))
        elements[address] = elements.get(address, 0) + tensor.numel()
    theirs_alone = all(flat[address].numel() == count for address, count in elements.items())
    return list(flat.values()) if theirs_alone else []


class UnreadNorm:
    """A norm that is being copied from the device, and the losses of its step."""

    def __init__(self, step: int, norm: Tensor, losses: list[Tensor]):
        self.step = step
        self.losses = losses
        self._copy = torch.empty((), dtype=norm.dtype, pin_memory=norm.device.type == "cuda")
        self._copy.copy_(norm, non_blocking=True)
        self._arrived = torch.Event(norm.device)
        self._arrived.record()

    def finite(self) -> bool:
        """Whether the norm is finite; waits for its step on the device, but for no later one."""
        self._arrived.synchronize()
        return bool(torch.isfinite(self._copy))
