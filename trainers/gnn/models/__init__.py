"""Graph networks: blocks, poolings and heads, as a configuration describes them.

Each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from castoff.trainers.gnn.models.encoder import Encoder
    from castoff.trainers.gnn.models.gnn_block import GNNBlock
    from castoff.trainers.gnn.models.gnn_model import GNNModel
    from castoff.trainers.gnn.models.gps import GPSModel, GPSTransformer
    from castoff.trainers.gnn.models.linear_sequential import LinearSequential
    from castoff.trainers.gnn.models.sequential import Sequential
    from castoff.trainers.gnn.models.skip_connection import SkipConnection

_HOMES = {
    "Encoder": "encoder",
    "GNNBlock": "gnn_block",
    "GNNModel": "gnn_model",
    "GPSModel": "gps",
    "GPSTransformer": "gps",
    "LinearSequential": "linear_sequential",
    "ScaledSequential": "scaled",
    "Sequential": "sequential",
    "SkipConnection": "skip_connection",
}

__all__ = [
    "Encoder",
    "GNNBlock",
    "GNNModel",
    "GPSModel",
    "GPSTransformer",
    "LinearSequential",
    "ScaledSequential",
    "Sequential",
    "SkipConnection",
]


def __getattr__(name: str) -> Any:
    """Import a name's module at its first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    """List the names that are loaded late, too."""
    return sorted({*globals(), *__all__})
