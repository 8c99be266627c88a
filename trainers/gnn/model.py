"""A graph network with several heads, in QuantumGrav's shape: blocks, pooling, heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

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

    `hidden`: the width of each block's output. `heads`: outputs of each task. `active_tasks`: which
    of them, by number, are trained, if not all; the others are frozen, because
    DistributedDataParallel waits for a gradient of every parameter that could have one.

    Raises:
        ValueError: an argument makes no sense; the text begins with its name.
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
            raise ValueError(f"conv: is {conv!r}, but takes {', '.join(CONVOLUTIONS)}")
        if not _list(pooling) or any(name not in POOLINGS for name in pooling):
            raise ValueError(f"pooling: is {pooling!r}, but takes a list of some of {', '.join(POOLINGS)}")
        if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout < 1:
            raise ValueError(f"dropout: is {dropout!r}, but takes a number from 0 to below 1")
        if not isinstance(with_skip, bool):
            raise ValueError(f"with_skip: is {with_skip!r}, but takes true or false")
        _check_sizes("hidden", hidden)
        _check_sizes("heads", heads)
        self.active = _active(len(heads), active_tasks)
        """The numbers of the tasks that are trained."""
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
        for number, head in enumerate(self.heads):
            head.requires_grad_(number in self.active)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor, graphs: int) -> dict[int, Tensor]:
        """The active tasks' outputs (graphs, outputs); `batch` is each node's graph."""
        for block in self.blocks:
            x = block(x, edge_index)
        pooled = torch.cat([pool(x, batch, graphs) for pool in self.poolings], dim=1)
        return {number: self.heads[number](pooled) for number in self.active}


def _list(value: Any) -> bool:
    """Whether it is a list (no text) with something in it."""
    return isinstance(value, (list, tuple)) and len(value) > 0


def _check_sizes(name: str, values: Any) -> None:
    if not _list(values) or any(type(value) is not int or value < 1 for value in values):
        raise ValueError(f"{name}: is {values!r}, but takes a list of whole numbers of at least 1")


def _active(heads: int, asked: Any) -> list[int]:
    """The numbers of the active tasks; `asked` may have them as text, as `--set` leaves them."""
    if asked is not None and not isinstance(asked, Mapping):
        raise ValueError(f"active_tasks: is {asked!r}, but takes true or false by number, as in {{1: false}}")
    active = dict.fromkeys(range(heads), True)
    for name, on in (asked or {}).items():
        number = int(name) if str(name).isdecimal() else heads
        if number not in active:
            raise ValueError(f"active_tasks: there is no task {name!r}, but 0 to {heads - 1}")
        if not isinstance(on, bool):
            raise ValueError(f"active_tasks: {number} is {on!r}, but takes true or false")
        active[number] = on
    if not any(active.values()):
        raise ValueError("active_tasks: switches every task off; leave one on")
    return [number for number, on in active.items() if on]
