"""A module's inputs beside node features, by the names of its parameters."""

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
"""A parameter's name, and what it means; `size` is the number of graphs."""


def taken(module: nn.Module, *, leaving: int = 1) -> dict[str, str]:
    """The parameters of a module's `forward`, after the first `leaving` ones, whose names are known, each
    with its meaning."""
    target = getattr(module, "function", None) or module.forward
    try:
        names = list(inspect.signature(target).parameters)[leaving:]
    except (TypeError, ValueError):  # a function of C
        return {}
    found = {name: _MEANINGS[name] for name in names if name in _MEANINGS}
    if isinstance(module, MessagePassing):
        found.pop("size", None)  # of a bipartite graph
        if getattr(module, "edge_dim", 0) is None:  # made for graphs without
            found.pop("edge_attr", None)
    if not getattr(module, "takes_graph_features", True):
        found.pop("graph_features", None)
    return found


def given(parameters: Mapping[str, str], **available: Any) -> dict[str, Any]:
    """Arguments for them, of what there is."""
    return {
        name: available[meaning] for name, meaning in parameters.items() if available.get(meaning) is not None
    }
