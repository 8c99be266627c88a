"""An exponential moving average of the weights, which is evaluated in their place."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from castoff.trainers.distributed.private_torch import lerp_all
from castoff.trainers.optimization.local import local


class AveragedWeights:
    """Averages a module's weights after each step; buffers are copied.

    The decay grows with the number of updates n, as min(decay, (1 + n) / (10 + n)), so that the average
    forgets the initial weights (as in Lou et al., arXiv 2310.16834). torch's AveragedModel starts with the
    first step's weights, and in each update the host waits while its counter is copied to the device.
    """

    def __init__(self, copied: nn.Module, decay: float):
        self.module = copied.requires_grad_(False)
        """A copy of the model, with the averaged weights."""
        self._decay = decay
        self._updates = 0

    def begin(self, model: nn.Module) -> None:
        """Start with these weights, unless there has been an update."""
        if not self._updates:
            self.module.load_state_dict(model.state_dict())

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Update the average with the weights after a step."""
        decay = min(self._decay, (1 + self._updates) / (10 + self._updates))
        averaged = [local(each) for each in self.module.parameters() if _has_fractions(each)]
        current = [local(each.detach()) for each in model.parameters() if _has_fractions(each)]
        lerp_all(averaged, current, 1 - decay)
        for buffer, current_buffer in zip(self.module.buffers(), model.buffers(), strict=True):
            buffer.copy_(current_buffer)
        self._updates += 1

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint, without the averaged weights."""
        return {"updates": self._updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a checkpoint."""
        self._updates = int(state["updates"])


def _has_fractions(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()
