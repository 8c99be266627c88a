"""Graph networks: causal sets read or generated, networks of blocks and heads, and what trains them.

Has the names that scripts for QuantumGrav use, so `import trainers.gnn as QG` stands where
`import QuantumGrav as QG` did. Each is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainers.configuration.yaml_text import get_loader
    from trainers.distributed.process_group import cleanup_ddp, initialize_ddp
    from trainers.gnn import dataloaders, early_stopping, evaluate, models, train, train_ddp
    from trainers.gnn.dataloaders import DataLoaderFactory, DistributedDataLoaderFactory
    from trainers.gnn.early_stopping import DefaultEarlyStopping
    from trainers.gnn.evaluate import (
        DefaultEvaluator,
        DefaultTester,
        DefaultValidator,
        Evaluator,
        Tester,
        Validator,
    )
    from trainers.gnn.graphs.stores import zarr_file_to_dict, zarr_group_to_dict
    from trainers.gnn.models import GNNModel
    from trainers.gnn.train import Trainer
    from trainers.gnn.train_ddp import TrainerDDP

_HOMES = {
    "DataLoaderFactory": "trainers.gnn.dataloaders",
    "DefaultEarlyStopping": "trainers.gnn.early_stopping",
    "DefaultEvaluator": "trainers.gnn.evaluate",
    "DefaultTester": "trainers.gnn.evaluate",
    "DefaultValidator": "trainers.gnn.evaluate",
    "DistributedDataLoaderFactory": "trainers.gnn.dataloaders",
    "Evaluator": "trainers.gnn.evaluate",
    "GNNModel": "trainers.gnn.models",
    "Tester": "trainers.gnn.evaluate",
    "Trainer": "trainers.gnn.train",
    "TrainerDDP": "trainers.gnn.train_ddp",
    "Validator": "trainers.gnn.evaluate",
    "cleanup_ddp": "trainers.distributed.process_group",
    "get_loader": "trainers.configuration.yaml_text",
    "initialize_ddp": "trainers.distributed.process_group",
    "zarr_file_to_dict": "trainers.gnn.graphs.stores",
    "zarr_group_to_dict": "trainers.gnn.graphs.stores",
}

_MODULES = ("dataloaders", "early_stopping", "evaluate", "models", "train", "train_ddp")

__all__ = [
    "DataLoaderFactory",
    "DefaultEarlyStopping",
    "DefaultEvaluator",
    "DefaultTester",
    "DefaultValidator",
    "DistributedDataLoaderFactory",
    "Evaluator",
    "GNNModel",
    "Tester",
    "Trainer",
    "TrainerDDP",
    "Validator",
    "cleanup_ddp",
    "dataloaders",
    "early_stopping",
    "evaluate",
    "get_loader",
    "initialize_ddp",
    "models",
    "train",
    "train_ddp",
    "zarr_file_to_dict",
    "zarr_group_to_dict",
]


def __getattr__(name: str) -> Any:
    """Import a name's module when it is asked for (PEP 562)."""
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"trainers.gnn.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The names that are loaded late are offered, too."""
    return sorted({*globals(), *__all__})
