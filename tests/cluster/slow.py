"""What takes its time, so that it is surely still there when it is to be interrupted."""

from __future__ import annotations

import os
import time
from typing import Any

from torch import nn

from castoff.trainers.task import Loss, Task

BEFORE = 7
"""Steps after which it may be interrupted."""

SHORT, LONG = 0.3, 2.0
"""Seconds of each step before that, in which ranks ask each other at every step, and of each after it."""


class Pace:
    """Of a training: slow in a run's first attempt, where the environment has SLOW."""

    def __init__(self) -> None:
        self.steps = 0

    def step(self) -> None:
        """Take the time of a training step."""
        if "SLOW" in os.environ and os.environ["CASTOFF_ATTEMPT"] == "0":
            self.steps += 1
            time.sleep(SHORT if self.steps <= BEFORE else LONG)


class Slow(Task):
    """Stands before a task's class."""

    pace = Pace()

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        if model.training:
            self.pace.step()
        return super().loss(model, batch)  # type: ignore[safe-super]
