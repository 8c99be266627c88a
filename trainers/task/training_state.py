"""The progress of a training: the one clock that everything counts by."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from castoff.trainers.distributed.devices import computing
from castoff.trainers.distributed.randomness import GENERATORS, STEP, TASK, Stream, derived, seed_all


@dataclass
class TrainingState:
    """Counts optimizer steps; a task reads it and never writes."""

    seed: int
    rank: int
    device: torch.device
    generators: frozenset[str] = GENERATORS
    """The global ones that are seeded in each step and batch."""
    precision: str = "fp32"
    """The configuration's `training.precision`."""
    folder: Path | None = None
    """The runs' folder, `training.path`: for a cache that cannot be written beside the data."""
    step: int = 0
    """Optimizer steps that are done."""
    epoch: int = 0
    """Epochs that are done."""
    consumed: int = 0
    """Steps of this epoch that are done."""
    validating: bool = False
    """Whether the model as it is now is still to be validated."""
    judged: int | None = None
    """Optimizer steps that were done at the last validation."""
    without_improvement: int = 0
    """Validations in a row that were no better than one before them."""
    ended: bool = False
    """Whether early stopping has ended the training."""
    train_data: list[dict[str, float]] = field(default_factory=list)
    """The training means of each epoch, over all ranks."""
    val_data: list[dict[str, float]] = field(default_factory=list)
    """The metrics of each validation, over all ranks."""
    _generator: torch.Generator | None = field(default=None, repr=False)
    _drawn_from: int | None = 0

    def __post_init__(self) -> None:
        self._steps = Stream(STEP, self.seed, self.rank)

    @property
    def generator(self) -> torch.Generator:
        """On the device, and this rank's own: begins anew in each step and batch, as the global ones do.

        For `loss` and `evaluate`; what loads and collates samples draws from the global ones.
        """
        if self._generator is None:
            self._generator = torch.Generator(self.device)
        if self._drawn_from is not None:
            self._generator.manual_seed(derived(TASK, self._drawn_from))
            self._drawn_from = None
        return self._generator

    def autocast(self) -> AbstractContextManager[Any]:
        """Around what is to be computed as training computes: a frozen reference, in `setup`."""
        return computing(self.device, self.precision)

    def begin_step(self) -> None:
        """Seed the random numbers of the next step by (seed, rank, step)."""
        self.draw_from(self._steps.seed(self.step))

    def draw_from(self, seed: int) -> None:
        """Seed the random numbers by `seed` alone."""
        seed_all(seed, self.generators)
        self._drawn_from = seed

    def validated(self, *, better: bool, stop: bool) -> None:
        """The model as it is now has been judged."""
        self.validating, self.judged, self.ended = False, self.step, stop
        self.without_improvement = 0 if better else self.without_improvement + 1

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {name: getattr(self, name) for name in _KEPT}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a checkpoint."""
        for name, value in state.items():
            setattr(self, name, value)


_KEPT = (
    *("step", "epoch", "consumed", "validating", "judged", "without_improvement"),
    *("train_data", "val_data"),
)
