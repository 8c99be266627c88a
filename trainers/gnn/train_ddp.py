"""TrainerDDP for graphs: the core's, for configurations that describe a network on graphs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from trainers import ddp
from trainers.configuration.config import Config
from trainers.data.loaders import TrainingLoader
from trainers.distributed.process_group import cleanup_ddp, initialize_ddp
from trainers.gnn.dataloaders import joined_rank
from trainers.gnn.defaults import with_defaults
from trainers.gnn.task import GraphTask
from trainers.task import Task
from trainers.task.custom_evaluator import CustomEvaluator

Kind = TypeVar("Kind", bound="TrainerDDP")

__all__ = ["TrainerDDP", "cleanup_ddp", "initialize_ddp"]


class TrainerDDP(ddp.TrainerDDP):
    """The core's trainer, with `GraphTask` for what a configuration describes without a task.

    Where causal sets are generated, what it leaves out is filled in, and stands in the run's config.yaml.
    """

    describes = GraphTask

    def __init__(self, rank: int, config: Mapping[str, Any] | Config, task: Task | None = None, **more: Any):
        described = Config.of(config)
        super().__init__(rank, described if task is not None else with_defaults(described), task, **more)

    @classmethod
    def from_config(cls: type[Kind], config: Mapping[str, Any] | Config) -> Kind:
        """The trainer of a configuration, on this rank of the process group."""
        return cls(joined_rank(), config)

    def run_training(self, train_loader: Any, val_loader: Any, trial: Any = None) -> Any:
        """As `trainers.TrainerDDP.run_training`; the loaders may come from a `DataLoaderFactory`."""
        elsewhere = not hasattr(self, "splits")
        if elsewhere and isinstance(self.task, GraphTask) and isinstance(train_loader, TrainingLoader):
            self.task.trained_on(train_loader.dataset)
        return super().run_training(train_loader, val_loader, trial)

    def run_test(self, test_loader: Any) -> Any:
        """As `trainers.TrainerDDP.run_test`."""
        return super().run_test(test_loader)

    def initialize_model(self) -> nn.Module:
        """The network, which is there from the beginning."""
        return self.model

    def initialize_optimizer(self) -> torch.optim.Optimizer:
        """The optimizer, which is there from the beginning."""
        return self.optimizer

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
        """The same of the test."""
        return _made(self.task.test_task())


def _made(task: Task) -> Any:
    own = task.whole_set_evaluator
    return own.evaluator if isinstance(own, CustomEvaluator) else None
