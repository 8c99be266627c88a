"""Layers of torch_geometric in a form that blocks can make: called with widths first."""

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
    """Batch norm over all nodes of a batch. A single node is normalised by the statistics of training so far.

    torch's own batch norm raises an error then; but a batch may be one graph, and a graph one node.
    """
    return BatchNorm(width, **{"allow_single_element": True, **kwargs})
