"""torch_geometric's layers that blocks cannot make as they are: called with widths first."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch_geometric.nn import BatchNorm, GINConv


def gin(in_dim: int, out_dim: int, **kwargs: Any) -> GINConv:
    """A graph isomorphism convolution with two layers (Xu et al., arXiv 1810.00826)."""
    return GINConv(
        nn.Sequential(nn.Linear(in_dim, out_dim), nn.ReLU(), nn.Linear(out_dim, out_dim)), **kwargs
    )


def batch_norm(width: int, **kwargs: Any) -> BatchNorm:
    """Over all nodes of a batch; where that is one node, with what training has seen so far.

    torch's own raises there: a batch may be one graph, and a graph one node.
    """
    return BatchNorm(width, **{"allow_single_element": True, **kwargs})
