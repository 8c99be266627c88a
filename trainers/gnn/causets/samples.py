"""A causal set as a graph, which depends only on the settings, a seed and an index."""

from __future__ import annotations

import numpy
import torch
from torch_geometric.data import Data

from castoff.trainers.gnn.causets.features import node_features, scalars
from castoff.trainers.gnn.causets.kinds import KINDS, Causet
from castoff.trainers.gnn.causets.order import links
from castoff.trainers.gnn.causets.settings import NAMES, Causets

MANIFOLD_LIKE, DIMENSION = 0, 1
"""The columns of `y`."""


def sample(settings: Causets, seed: int, index: int) -> Data:
    """The graph with an index: the same bits in every process, whichever other graphs have been made.

    Edges are the links, in both directions. `x`: (elements, NODE features); `y` (1, 2): whether it is
    manifold-like (1 or 0), and its dimension or 0; `kind` (1,): the index of its kind; `graph_features`: (1,
    SCALARS). A seed in the settings replaces `seed`.
    """
    name, causet = drawn(settings, seed, index)
    return graph(causet, NAMES.index(name))


def drawn(settings: Causets, seed: int, index: int) -> tuple[str, Causet]:
    """The causal set with an index, and the name of its kind."""
    seed = seed if settings.seed is None else settings.seed
    # A generator takes no negative number, but a training's seed may be negative.
    generator = numpy.random.default_rng([abs(seed), int(seed < 0), index])
    names = [name for name in NAMES if settings.kinds.get(name, 0) > 0]
    limits = numpy.cumsum([settings.kinds[name] for name in names])
    index_of_kind = int(numpy.searchsorted(limits, generator.random() * limits[-1], side="right"))
    number = int(generator.integers(settings.size[0], settings.size[1] + 1))
    name = names[min(index_of_kind, len(names) - 1)]
    return name, KINDS[name](number, generator)


def graph(causet: Causet, kind: int) -> Data:
    """A causal set as a graph."""
    bare = links(causet.order)
    source, target = numpy.nonzero(bare)
    both = numpy.stack([numpy.concatenate([source, target]), numpy.concatenate([target, source])])
    return Data(
        x=torch.from_numpy(node_features(causet.order, bare)),
        edge_index=torch.from_numpy(both),
        y=torch.tensor([[float(causet.manifold_like), causet.dimension]]),
        kind=torch.tensor([kind]),
        graph_features=torch.from_numpy(scalars(causet.order, bare))[None],
    )
