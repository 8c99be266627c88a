"""A module's inputs besides node features, by the names of its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import nn
from torch_geometric.nn import MessagePassing

_MEANINGS = {
    "edge_index": "edge_index",
    "batch": "batch",
    "index": "batch",  # torch_geometric's aggregations
    "size": "size",
    "batch_size": "size",
    "num_graphs": "size",
    "dim_size": "size",
    "edge_attr": "edge_attr",
    "edge_weight": "edge_weight",
    "graph_features": "graph_features",
}
"""The meanings of parameters by their names; `size` is the number of graphs."""


def taken(module: nn.Module, *, leaving: int = 1) -> dict[str, str]:
    """The parameters of a module's `forward`, after the first `leaving` ones, that have a known name, each
    with its meaning.
    """
    target = getattr(module, "function", None) or module.forward
    try:
        names = list(inspect.signature(target).parameters)[leaving:]
    except (TypeError, ValueError):  # implemented in C
        return {}
    meanings = {name: _MEANINGS[name] for name in names if name in _MEANINGS}
    if isinstance(module, MessagePassing):
        meanings.pop("size", None)  # means a bipartite graph's size
        if getattr(module, "edge_dim", 0) is None:  # made without edge features
            meanings.pop("edge_attr", None)
    if not getattr(module, "takes_graph_features", True):
        meanings.pop("graph_features", None)
    return meanings


def given(parameters: Mapping[str, str], **available: Any) -> dict[str, Any]:
    """The arguments for these parameters, as far as they are available."""
    return {
        name: available[meaning] for name, meaning in parameters.items() if available.get(meaning) is not None
    }
