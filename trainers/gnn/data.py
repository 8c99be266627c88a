"""Data sets of causal sets, each a function of (seed, index), as graphs for torch_geometric."""

from __future__ import annotations

from typing import Any

import numpy
import torch
from torch.utils.data import Dataset
from torch_geometric.data import Data

from trainers.gnn.causets.estimators import myrheim_meyer
from trainers.gnn.causets.order import Order, chains, links, ordering_fraction
from trainers.gnn.causets.random_orders import layered, percolation
from trainers.gnn.causets.sprinkling import sprinkled

FEATURES = 5
"""Per element: degrees and links to the past and the future, and its height."""

DIMENSIONS = (2, 3, 4)

CACHE = 1 << 30
"""Bytes of graphs that a data set keeps in a process; those that find no room are made each time.

About 100,000 sets of 64 elements, or 2,000 of 1,000.
"""


class Causets(Dataset[Any]):
    """Half manifold-like (two to four dimensions alike often), a quarter layered, a quarter random.

    The random orders have ordering fractions as manifold-like ones have, so that this alone does
    not tell them apart. Each graph holds `x` (elements by FEATURES), `edge_index` (links, both
    ways), `manifold` (1 or 0), `dimension` (0 where there is none), `ordering_fraction` and
    `estimate`, Myrheim and Meyer's dimension.
    """

    draws_from = ()
    """None of the global generators."""

    def __init__(self, length: int, *, mean: float = 64.0, seed: int = 0, first: int = 0):
        self.length = length
        self.mean = mean
        self.seed = seed
        self.first = first
        self._made: dict[int, Data] = {}
        self._bytes = 0

    def __len__(self) -> int:
        """How many."""
        return self.length

    def __getitem__(self, index: int) -> Data:
        """The graph of a causal set, always the same one."""
        made = self._made.get(index)
        if made is None:
            made = graph(*self.causet(index))
            size = sum(part.nbytes for part in made.to_dict().values())
            if self._bytes + size <= CACHE:
                self._made[index] = made
                self._bytes += size
        return made

    def causet(self, index: int) -> tuple[Order, int]:
        """The causal set itself, and its dimension; 0: none."""
        if not 0 <= index < self.length:
            raise IndexError(index)
        return causet(self.seed, self.first + index, self.mean)


def causet(seed: int, index: int, mean: float) -> tuple[Order, int]:
    """A causal set, and its dimension: 0 where it comes from no manifold."""
    generator = numpy.random.default_rng([seed, index])
    kind = index % 4
    if kind < 2:
        dimension = int(generator.choice(DIMENSIONS))
        number = max(2, int(generator.poisson(mean)))
        return sprinkled(number, dimension, generator), dimension
    number = max(4, int(generator.poisson(mean)))
    if kind == 2:
        return layered(number, generator, generator.uniform(0.3, 0.7)), 0
    return percolation(number, min(generator.uniform(1.5, 8.0) / number, 1.0), generator), 0


def graph(order: Order, dimension: int) -> Data:
    """A causal set as a graph."""
    bare = links(order)
    number = len(order)
    height = chains(order)
    depth = chains(order[::-1, ::-1].T)[::-1]
    longest = max(int(height.max()), 1)
    features = numpy.column_stack(
        [
            order.sum(0) / number,
            order.sum(1) / number,
            bare.sum(0) / number**0.5,
            bare.sum(1) / number**0.5,
            (height - depth) / longest,
        ]
    ).astype(numpy.float32)
    source, target = numpy.nonzero(bare)
    both = numpy.stack([numpy.concatenate([source, target]), numpy.concatenate([target, source])])
    return Data(
        x=torch.from_numpy(features),
        edge_index=torch.from_numpy(both),
        manifold=torch.tensor([float(dimension > 0)]),
        dimension=torch.tensor([float(dimension)]),
        ordering_fraction=torch.tensor([ordering_fraction(order)]),
        estimate=torch.tensor([myrheim_meyer(order)]),
    )
