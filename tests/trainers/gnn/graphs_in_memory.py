"""A few small graphs in memory, whose class can be seen in their nodes, and what is made of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from torch_geometric.data import Data

from castoff.trainers.configuration.pyobject import PyObject
from tests.trainers.toys import config

WIDTH = 3

ENCODER: dict[str, Any] = {
    "encoder_type": "Encoder",
    "encoder_args": [WIDTH],
    "encoder_kwargs": {"hidden": [8], "dropout": 0.0},
    "pooling_layers": ["mean", "max"],
}
"""With batch norm; `downstream_tasks` are missing."""

HEAD = ["LinearSequential", [[16, 1]]]


class Graphs(Dataset[Any]):
    """Graph `index` has `index % 2` as its class, and `index` as a number beside it."""

    rng_sources = ()

    def __init__(self, length: int = 40):
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Data:
        if not 0 <= index < self.length:
            raise IndexError(index)
        draw, nodes = torch.Generator().manual_seed(index), 2 + index % 3
        around = torch.arange(nodes)
        return Data(
            x=torch.rand(nodes, WIDTH, generator=draw) + 4.0 * (index % 2),
            edge_index=torch.stack([around, around.roll(1)]),
            graph_features=torch.full((1, 2), float(index)),
            y=torch.tensor([[float(index % 2), float(index)]]),
        )


def compute_loss(outputs: dict[int, Tensor], batch: Any) -> Tensor:
    """Of the classes, by the first active head."""
    (first, *_) = outputs.values()
    wanted = batch.y[:, :1]
    return nn.functional.binary_cross_entropy_with_logits(first, wanted)


def described(path: Path | str, heads: int = 1, length: int = 40, **training: Any) -> dict[str, Any]:
    """A configuration that describes a network on these graphs."""
    return {
        **config(path, **{"num_epochs": 2, "batch_size": 4, **training}),
        "model": {**ENCODER, "downstream_tasks": [HEAD] * heads},
        "data": {"dataset": PyObject(f"{__name__}.Graphs"), "length": length},
        "criterion": PyObject(f"{__name__}.compute_loss"),
    }


def monitored(*names: Any) -> dict[str, Any]:
    """An evaluator with monitors by their bare names, or as they are given."""
    given = [{"name": each.lower(), "monitor": each} if isinstance(each, str) else each for each in names]
    return {"evaluator_tasks": given}


class Sum(nn.Module):
    """A network of somebody's own, which knows nothing of ours."""

    def __init__(self, widths: Sequence[int], layer: type[nn.Module] = nn.Linear, *, bias: bool = True):
        super().__init__()
        self.layer = layer(*widths, bias=bias)

    def forward(self, x: Tensor, edges: Tensor, batch: Tensor) -> dict[int, Tensor]:
        graphs = int(batch.max()) + 1
        nodes: Tensor = self.layer(x)
        return {0: torch.zeros(graphs, nodes.shape[1], device=x.device).index_add(0, batch, nodes)}


class Featured(nn.Module):
    """One that says what else it takes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(
        self, x: Tensor, edge_index: Tensor, batch: Tensor, graph_features: Tensor, num_graphs: int
    ) -> dict[int, Tensor]:
        assert graph_features.shape == (num_graphs, 2)
        return {0: graph_features[:, :1] * 0 + self.weight}


class Broken(nn.Module):
    """One with a mistake of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        raise ValueError("mine")
