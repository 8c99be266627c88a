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
    """The trainer, which uses `GraphTask` if a configuration names no task.

    If causal sets are generated, what the configuration leaves out gets defaults, which the run's config.yaml
    shows.
    """

    describes = GraphTask

    def __init__(self, rank: int, config: Mapping[str, Any] | Config, task: Task | None = None, **more: Any):
        described = Config.of(config)
        super().__init__(rank, described if task is not None else with_defaults(described), task, **more)

    # --- What QuantumGrav's scripts and criteria ask a trainer for -------------------------------------

    @property
    def device(self) -> torch.device:
        """The device on which this rank computes."""
        return self.context.device

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self.context.world_size

    @property
    def data_path(self) -> Path:
        """The run's folder."""
        return self.folder

    @property
    def optimizer(self) -> torch.optim.Optimizer:
        """The optimizer of the weights."""
        return self.engine.optimizer

    @property
    def validator(self) -> Any:
        """The validation's evaluator, if it is a custom one."""
        return _made(self.task)

    @property
    def tester(self) -> Any:
        """The test's evaluator, if it is a custom one."""
        return _made(self.task.test_task())


def _made(task: Task) -> Any:
    evaluator = task.whole_set_evaluator
    return evaluator.evaluator if isinstance(evaluator, CustomEvaluator) else None
