"""A graph network with several heads, in QuantumGrav's shape: blocks, pooling, heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, SAGEConv, global_add_pool, global_max_pool, global_mean_pool

CONVOLUTIONS = {"gcn": GCNConv, "sage": SAGEConv}
POOLINGS = {"mean": global_mean_pool, "max": global_max_pool, "sum": global_add_pool}


class GNNBlock(nn.Module):
    """Convolution, batch norm, ReLU, a skip connection around them, dropout."""

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        *,
        conv: Literal["gcn", "sage"] = "sage",
        dropout: float = 0.3,
        with_skip: bool = True,
    ):
        super().__init__()
        self.conv = CONVOLUTIONS[conv](in_dim, out_dim)
        self.norm = nn.BatchNorm1d(out_dim)
        self.skip: nn.Module | None = None
        if with_skip:
            self.skip = nn.Identity() if in_dim == out_dim else nn.Linear(in_dim, out_dim, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Node features (nodes, in_dim) to (nodes, out_dim)."""
        out = torch.relu(self.norm(self.conv(x, edge_index)))
        if self.skip is not None:
            out = out + self.skip(x)
        answer: Tensor = self.dropout(out)
        return answer


class GNNModel(nn.Module):
    """Blocks over a graph, poolings side by side, and one small network per task.

    `heads`: outputs of each task. `active_tasks`: which of them are trained; the others are frozen,
    because DistributedDataParallel waits for a gradient of every parameter that could have one.

    Raises:
        ValueError: an unknown convolution or pooling, or no active task.
    """

    def __init__(
        self,
        in_dim: int,
        hidden: Sequence[int] = (64, 64, 64),
        heads: Sequence[int] = (1, 1),
        *,
        conv: Literal["gcn", "sage"] = "sage",
        pooling: Sequence[str] = ("mean", "max"),
        dropout: float = 0.1,
        with_skip: bool = True,
        active_tasks: Mapping[int, bool] | None = None,
    ):
        super().__init__()
        if conv not in CONVOLUTIONS:
            raise ValueError(f"model.conv: is {conv!r}, but takes {', '.join(CONVOLUTIONS)}")
        if not pooling or set(pooling) - set(POOLINGS):
            raise ValueError(f"model.pooling: is {list(pooling)}, but takes some of {', '.join(POOLINGS)}")
        widths = [in_dim, *hidden]
        self.blocks = nn.ModuleList(
            GNNBlock(before, after, conv=conv, dropout=dropout, with_skip=with_skip)
            for before, after in pairwise(widths)
        )
        self.poolings = [POOLINGS[name] for name in pooling]
        width = widths[-1] * len(pooling)
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Linear(width, widths[-1]), nn.ReLU(), nn.Linear(widths[-1], outputs))
            for outputs in heads
        )
        active = active_tasks or {}
        self.active = [number for number in range(len(heads)) if active.get(number, True)]
        if not self.active:
            raise ValueError("model.active_tasks: switches every task off; leave one on")
        for number, head in enumerate(self.heads):
            head.requires_grad_(number in self.active)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, graphs: int) -> dict[int, Tensor]:
        """The active tasks' outputs (graphs, outputs); `batch` is each node's graph."""
        for block in self.blocks:
            x = block(x, edge_index)
        pooled = torch.cat([pool(x, batch, graphs) for pool in self.poolings], dim=1)
        return {number: self.heads[number](pooled) for number in self.active}
