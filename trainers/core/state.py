"""Where training stands: the one clock that everything counts by, and the random stream of a step."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from trainers.core.randomness import TASK, derived


@dataclass
class TrainingState:
    """Counts optimizer steps; a task reads it and never writes."""

    seed: int
    rank: int
    device: torch.device
    step: int = 0
    """Optimizer steps that are done."""
    epoch: int = 0
    """Epochs that are done."""
    consumed: int = 0
    """Steps of this epoch that are done."""
    _generator: torch.Generator | None = field(default=None, repr=False)
    _seeded: int = -1

    @property
    def generator(self) -> torch.Generator:
        """On the device, and this rank's own: begins anew in each step, from (seed, rank, step)."""
        if self._generator is None:
            self._generator = torch.Generator(self.device)
        if self._seeded != self.step:
            self._generator.manual_seed(derived(TASK, self.seed, self.rank, self.step))
            self._seeded = self.step
        return self._generator

    def state_dict(self) -> dict[str, int]:
        """What a checkpoint keeps."""
        return {"step": self.step, "epoch": self.epoch, "consumed": self.consumed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from a checkpoint."""
        self.step, self.epoch, self.consumed = state["step"], state["epoch"], state["consumed"]
