"""Graph networks: causal sets read or generated, networks of blocks and heads, and what trains them.

Has the names that scripts for QuantumGrav use, so `import trainers.gnn as QG` stands where
`import QuantumGrav as QG` did. Each is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainers.core.distributed import cleanup_ddp, initialize_ddp
    from trainers.core.early_stopping import DefaultEarlyStopping
    from trainers.core.yaml_text import get_loader
    from trainers.gnn import models
    from trainers.gnn.ddp import TrainerDDP
    from trainers.gnn.graphs.stores import zarr_file_to_dict, zarr_group_to_dict
    from trainers.gnn.models import GNNModel

_HOMES = {
    "DefaultEarlyStopping": "trainers.core.early_stopping",
    "GNNModel": "trainers.gnn.models",
    "TrainerDDP": "trainers.gnn.ddp",
    "cleanup_ddp": "trainers.core.distributed",
    "get_loader": "trainers.core.yaml_text",
    "initialize_ddp": "trainers.core.distributed",
    "zarr_file_to_dict": "trainers.gnn.graphs.stores",
    "zarr_group_to_dict": "trainers.gnn.graphs.stores",
}

__all__ = [
    "DefaultEarlyStopping",
    "GNNModel",
    "TrainerDDP",
    "cleanup_ddp",
    "get_loader",
    "initialize_ddp",
    "models",
    "zarr_file_to_dict",
    "zarr_group_to_dict",
]


def __getattr__(name: str) -> Any:
    """Import a name's module when it is asked for (PEP 562)."""
    from importlib import import_module

    if name == "models":
        return import_module("trainers.gnn.models")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The names that are loaded late are offered, too."""
    return sorted({*globals(), *__all__})
