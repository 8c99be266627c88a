"""Graphs that networks are tried on."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

WIDTH = 5


def graph(nodes: int, seed: int = 0, edges: int | None = None) -> Data:
    """Random edges both ways, `nodes` of them by default."""
    draw = torch.Generator().manual_seed(seed * 1000 + nodes)
    number = nodes if edges is None else edges
    one_way = torch.randint(nodes, (2, number), generator=draw) if nodes else torch.empty(2, 0).long()
    return Data(
        x=torch.rand(nodes, WIDTH, generator=draw),
        edge_index=torch.cat([one_way, one_way.flip(0)], dim=1),
        graph_features=torch.rand(1, 3, generator=draw),
        y=torch.rand(1, 1, generator=draw),
        num_nodes=nodes,
    )


def batch(*sizes: int) -> Batch:
    """One large graph of many."""
    return Batch.from_data_list([graph(size, seed) for seed, size in enumerate(sizes)])


def permuted(given: Data, order: Sequence[int] | Tensor) -> Data:
    """The same graph with its nodes in another order."""
    wanted = torch.as_tensor(order)
    return Data(x=given.x[wanted], edge_index=torch.argsort(wanted)[given.edge_index])
