"""The progress of a training: its step and epoch, and results so far."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.distributed.devices import computing
from castoff.trainers.distributed.randomness import GENERATORS, STEP, TASK, Stream, derived, seed_all


@dataclass
class TrainingState:
    """Counts optimizer steps and epochs; a task may read it, but not write."""

    seed: int
    rank: int
    device: torch.device
    generators: frozenset[str] = GENERATORS
    """The global random generators that are seeded in each step and batch."""
    precision: str = "fp32"
    """The configuration's `training.precision`."""
    folder: Path | None = None
    """The folder of runs, `training.path`, also for a cache that cannot be written next to the data."""
    step: int = 0
    """Completed optimizer steps."""
    epoch: int = 0
    """Completed epochs."""
    consumed: int = 0
    """Completed steps of the current epoch."""
    without_turns: tuple[str, ...] = ()
    """The names of a task's optimizers, if there are several that take no turns."""
    validating: bool = False
    """Whether the current model still has to be validated."""
    judged: int | None = None
    """The value of `step` at the last validation."""
    without_improvement: int = 0
    """Consecutive validations without improvement."""
    ended: bool = False
    """Whether early stopping has ended the training."""
    train_data: list[dict[str, float]] = field(default_factory=list)
    """The training means of each epoch, over all ranks."""
    val_data: list[dict[str, float]] = field(default_factory=list)
    """The metrics of each validation, over all ranks."""
    _generator: torch.Generator | None = field(default=None, repr=False)
    _drawn_from: int | None = 0
    _turn: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._steps = Stream(STEP, self.seed, self.rank)

    @property
    def generator(self) -> torch.Generator:
        """This rank's generator on the device, seeded anew in each step and batch, as the global ones are.

        For `loss` and `evaluate`; code that loads and collates samples draws from the global ones.
        """
        if self._generator is None:
            self._generator = torch.Generator(self.device)
        if self._drawn_from is not None:
            self._generator.manual_seed(derived(TASK, self._drawn_from))
            self._drawn_from = None
        return self._generator

    @property
    def turn(self) -> str | None:
        """The optimizer whose loss is computed, in a task with `turns`.

        Raises:
            ConfigError: the task has several optimizers, and no `turns`.
        """
        if self.without_turns:
            names = ", ".join(f'"{name}"' for name in self.without_turns)
            raise ConfigError(
                [
                    "task.turns: is empty, but the task reads state.turn and has several optimizers; write "
                    f"turns = ({names}) in its class, in the order of the turns"
                ]
            )
        return self._turn

    @turn.setter
    def turn(self, name: str | None) -> None:
        self._turn = name

    def autocast(self) -> AbstractContextManager[Any]:
        """A context that computes in training's precision, for a frozen reference model in `setup`, say."""
        return computing(self.device, self.precision)

    def begin_step(self) -> None:
        """Seed the random numbers of the next step by (seed, rank, step)."""
        self.draw_from(self._steps.seed(self.step))

    def draw_from(self, seed: int) -> None:
        """Seed the random generators with `seed`."""
        seed_all(seed, self.generators)
        self._drawn_from = seed

    def validated(self, *, better: bool, stop: bool) -> None:
        """Record that the current model has been validated."""
        self.validating, self.judged, self.ended = False, self.step, stop
        self.without_improvement = 0 if better else self.without_improvement + 1

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {name: getattr(self, name) for name in _KEPT}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a checkpoint."""
        for name, value in state.items():
            setattr(self, name, value)


_KEPT = (
    *("step", "epoch", "consumed", "validating", "judged", "without_improvement"),
    *("train_data", "val_data"),
)
