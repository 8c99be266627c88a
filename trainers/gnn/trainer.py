"""The trainer of configurations that describe a network on graphs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from castoff.trainers import ddp
from castoff.trainers.configuration.config import Config
from castoff.trainers.gnn.defaults import with_defaults
from castoff.trainers.gnn.task import GraphTask
from castoff.trainers.task import Task
from castoff.trainers.task.custom_evaluator import CustomEvaluator


class GraphTrainer(ddp.TrainerDDP):
    """The trainer, with `GraphTask` for what a configuration describes without a task.

    Where causal sets are generated, what it leaves out is filled in, and stands in the run's config.yaml.
    """

    describes = GraphTask

    def __init__(self, rank: int, config: Mapping[str, Any] | Config, task: Task | None = None, **more: Any):
        described = Config.of(config)
        super().__init__(rank, described if task is not None else with_defaults(described), task, **more)

    # --- What QuantumGrav's scripts and criteria ask a trainer for -------------------------------------

    @property
    def device(self) -> torch.device:
        """Where this rank computes."""
        return self.context.device

    @property
    def world_size(self) -> int:
        """How many ranks there are."""
        return self.context.world_size

    @property
    def data_path(self) -> Path:
        """The run's folder."""
        return self.folder

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """What steps the weights."""
        return self.engine.optimizer

    @property
    def validator(self) -> Any:
        """The validation's evaluator, if it is the user's own."""
        return _made(self.task)

    @property
    def tester(self) -> Any:
        """The test's evaluator, if it is the user's own."""
        return _made(self.task.test_task())


def _made(task: Task) -> Any:
    own = task.whole_set_evaluator
    return own.evaluator if isinstance(own, CustomEvaluator) else None
