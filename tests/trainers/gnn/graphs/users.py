"""What a user writes: a reader in QuantumGrav's manner, a filter, transforms."""

from __future__ import annotations

import os
from typing import Any

import numpy
import torch
from torch_geometric.data import Data
from torch_geometric.utils import dense_to_sparse


def read(group: Any, index: int, float_type: torch.dtype, int_type: torch.dtype, validate: bool) -> Any:
    """A dict, which `collect` makes a graph of."""
    cset = group[f"cset_{index + 1}"]
    return {
        "adjacency": numpy.asarray(cset["adj"]).T,
        "dimension": int(numpy.asarray(cset["dimension"][()]).item()),
        "types": (float_type, int_type),
        "validate": validate,
    }


def collect(sample: dict[str, Any]) -> Data:
    edges, weights = dense_to_sparse(torch.tensor(sample["adjacency"], dtype=sample["types"][0]))
    return Data(
        x=torch.ones(len(sample["adjacency"]), 1, dtype=sample["types"][0]),
        edge_index=edges.to(sample["types"][1]),
        edge_attr=weights,
        y=torch.tensor([[sample["dimension"]]], dtype=sample["types"][1]),
    )


def no_plane(sample: dict[str, Any]) -> bool:
    return bool(sample["dimension"] != 2)


def nothing(sample: Any) -> bool:
    return False


def doubled(graph: Data) -> Data:
    """In place, as transforms often are."""
    graph.x *= 2
    return graph


def stumbles(sample: dict[str, Any]) -> Data:
    if sample["dimension"] == 3:
        raise KeyError("no such thing")
    return collect(sample)


def broken(sample: dict[str, Any]) -> Data:
    """Of a dimension each, another fault."""
    graph = collect(sample)
    if sample["dimension"] == 2:
        graph.x[0] = torch.nan
    elif sample["dimension"] == 3:
        graph.edge_index[0, 0] = 1000
    else:
        graph.lock = os
    return graph


def given(graph: Data) -> Data:
    return graph
