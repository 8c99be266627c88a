"""The trainer with QuantumGrav's interface and its name, TrainerDDP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from castoff.trainers.configuration.config import Config
from castoff.trainers.data.loaders import TrainingLoader
from castoff.trainers.distributed.process_group import cleanup_ddp, initialize_ddp
from castoff.trainers.gnn.dataloaders import joined_rank
from castoff.trainers.gnn.task import GraphTask
from castoff.trainers.gnn.trainer import GraphTrainer

Kind = TypeVar("Kind", bound="QuantumGravTrainer")

__all__ = ["QuantumGravTrainer", "TrainerDDP", "cleanup_ddp", "initialize_ddp"]


class QuantumGravTrainer(GraphTrainer):
    """`GraphTrainer` with the methods and argument names of QuantumGrav's TrainerDDP."""

    @classmethod
    def from_config(cls: type[Kind], config: Mapping[str, Any] | Config) -> Kind:
        """Make the trainer of a configuration, on this rank of the process group."""
        return cls(joined_rank(), config)

    def run_training(self, train_loader: Any, val_loader: Any, trial: Any = None) -> Any:
        """See `trainers.TrainerDDP.run_training`; the loaders may come from a `DataLoaderFactory`."""
        own_loaders = not hasattr(self, "splits")
        if own_loaders and isinstance(self.task, GraphTask) and isinstance(train_loader, TrainingLoader):
            self.task.trained_on(train_loader.dataset)
        return super().run_training(train_loader, val_loader, trial)

    def run_test(self, test_loader: Any) -> Any:
        """See `trainers.TrainerDDP.run_test`."""
        return super().run_test(test_loader)

    def initialize_model(self) -> nn.Module:
        """The network, which exists from the beginning."""
        return self.model

    def initialize_optimizer(self) -> torch.optim.Optimizer:
        """The optimizer, which exists from the beginning."""
        return self.optimizer


TrainerDDP = QuantumGravTrainer
"""The trainer's name in QuantumGrav's scripts."""
