"""Graph networks: causal sets read or generated, networks of blocks and heads, and what trains them.

It has the names that QuantumGrav's scripts use, so `import castoff.trainers.gnn as QG` replaces `import
QuantumGrav as QG`. Each is loaded at its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from castoff.trainers.configuration.yaml_text import get_loader
    from castoff.trainers.distributed.process_group import cleanup_ddp, initialize_ddp
    from castoff.trainers.gnn import dataloaders, early_stopping, evaluate, models, train, train_ddp
    from castoff.trainers.gnn.dataloaders import DataLoaderFactory, DistributedDataLoaderFactory
    from castoff.trainers.gnn.early_stopping import DefaultEarlyStopping
    from castoff.trainers.gnn.evaluate import (
        DefaultEvaluator,
        DefaultTester,
        DefaultValidator,
        Evaluator,
        Tester,
        Validator,
    )
    from castoff.trainers.gnn.graphs.stores import zarr_file_to_dict, zarr_group_to_dict
    from castoff.trainers.gnn.models import GNNModel
    from castoff.trainers.gnn.train import Trainer
    from castoff.trainers.gnn.train_ddp import TrainerDDP

_HOMES = {
    "DataLoaderFactory": "castoff.trainers.gnn.dataloaders",
    "DefaultEarlyStopping": "castoff.trainers.gnn.early_stopping",
    "DefaultEvaluator": "castoff.trainers.gnn.evaluate",
    "DefaultTester": "castoff.trainers.gnn.evaluate",
    "DefaultValidator": "castoff.trainers.gnn.evaluate",
    "DistributedDataLoaderFactory": "castoff.trainers.gnn.dataloaders",
    "Evaluator": "castoff.trainers.gnn.evaluate",
    "GNNModel": "castoff.trainers.gnn.models",
    "Tester": "castoff.trainers.gnn.evaluate",
    "Trainer": "castoff.trainers.gnn.train",
    "TrainerDDP": "castoff.trainers.gnn.train_ddp",
    "Validator": "castoff.trainers.gnn.evaluate",
    "cleanup_ddp": "castoff.trainers.distributed.process_group",
    "get_loader": "castoff.trainers.configuration.yaml_text",
    "initialize_ddp": "castoff.trainers.distributed.process_group",
    "zarr_file_to_dict": "castoff.trainers.gnn.graphs.stores",
    "zarr_group_to_dict": "castoff.trainers.gnn.graphs.stores",
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
    """Import a name's module at its first use (PEP 562)."""
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"castoff.trainers.gnn.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the names that are loaded late, too."""
    return sorted({*globals(), *__all__})
