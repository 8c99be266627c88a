"""A graph transformer: messages between neighbours, and attention between all nodes of a graph.

Rampášek et al., arXiv 2205.12454, on torch_geometric's GPSConv. Performers (Choromanski et al., arXiv
2009.14794) attend through random projections, which are drawn again at intervals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GINConv, GPSConv, global_add_pool
from torch_geometric.nn.attention import PerformerAttention

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.gnn.models.checks import a_share, a_switch, among, positive
from castoff.trainers.gnn.models.gnn_block import with_width
from castoff.trainers.gnn.models.parts import Fields, Part, built, part

_ATTENTION = ("multihead", "performer")


class GPSModel(nn.Module):
    """Maps node features (nodes, in_features) to (graphs, out_features), or (nodes, out_features).

    Edge features are not used; positions belong to the node features.

    Args:
        in_features, out_features: Numbers per node, and numbers per row of the output.
        channels: Numbers per node between layers; a multiple of `num_heads`.
        num_heads: Attention heads.
        num_layers: Layers.
        attn_type, attn_kwargs: `multihead`, or `performer`, whose memory grows linearly with the number of
            nodes, not quadratically. A performer's output depends on the largest graph of the batch, and
            `training.compile` does not support performers (torch 2.13).
        redraw_interval: Training batches after which performers draw new projections, the same on each
            rank; null means never.
        norm, norm_kwargs: The norm after each layer.
        act, act_kwargs: The activation within each layer.
        dropout: The dropout rate in each layer.
        with_pooling: Sum the nodes of each graph before the last layers. The output then has a row per
            graph and needs no `pooling_layers`; if false, it has a row per node.

    Raises:
        ConfigError: lists every argument that makes no sense.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        channels: int,
        num_heads: int,
        num_layers: int,
        attn_type: str = "multihead",
        attn_kwargs: Mapping[str, Any] | None = None,
        redraw_interval: int | None = 1000,
        norm: Any = "batch",
        norm_kwargs: Mapping[str, Any] | None = None,
        act: Any = "relu",
        act_kwargs: Mapping[str, Any] | None = None,
        dropout: float = 0.0,
        with_pooling: bool = True,
    ):
        super().__init__()
        problems = positive(in_features=in_features, out_features=out_features)
        problems += positive(channels=channels, num_heads=num_heads, num_layers=num_layers)
        if not problems and channels % num_heads:
            problems.append(f"channels: is {channels}, but takes a multiple of num_heads, {num_heads}")
        problems += among("attn_type", attn_type, _ATTENTION) + a_share(dropout=dropout)
        problems += a_switch(with_pooling=with_pooling)
        if redraw_interval is not None:
            problems += positive(redraw_interval=redraw_interval)
        described = _part("norm", norm or "identity", norm_kwargs, "norm", problems)
        activation = _part("act", act or "identity", act_kwargs, "activation", problems)
        if problems or described is None or activation is None:
            raise ConfigError(problems)
        self.in_features, self.out_features = in_features, out_features
        self.with_pooling = with_pooling
        self.input_proj = nn.Linear(in_features, channels)
        self.convs = nn.ModuleList(
            _layer(channels, num_heads, dropout, attn_type, attn_kwargs or {}, described, activation)
            for _ in range(num_layers)
        )
        half, quarter = max(channels // 2, 1), max(channels // 4, 1)
        narrower: Sequence[nn.Module] = (nn.Linear(channels, half), nn.ReLU(), nn.Linear(half, quarter))
        self.mlp = nn.Sequential(*narrower, nn.ReLU(), nn.Linear(quarter, out_features))
        self.redraw = Redraw(self.convs, redraw_interval if attn_type == "performer" else None)

    def forward(
        self, x: Tensor, edge_index: Tensor, batch: Tensor | None = None, batch_size: int | None = None
    ) -> Tensor:
        """A row for each graph, or for each node; `batch_size` is the number of graphs."""
        if self.training:
            self.redraw()
        if batch is None:
            batch, batch_size = edge_index.new_zeros(x.shape[0]), 1
        x = self.input_proj(x)
        for conv in self.convs:
            x = conv(x, edge_index, batch=batch)
        if self.with_pooling:
            x = global_add_pool(x, batch, batch_size)
        answer: Tensor = self.mlp(x)
        return answer


GPSTransformer = GPSModel
"""QuantumGrav's name: there, a class around the model redraws projections."""


class Redraw(nn.Module):
    """Draws new projections for performers after `interval` training batches, the same on every rank.

    The n-th projections follow from n and a number that is drawn once, when the model is made, so a run that
    resumes from a checkpoint draws the same ones.
    """

    def __init__(self, layers: nn.Module, interval: int | None):
        super().__init__()
        performers = [module for module in layers.modules() if isinstance(module, PerformerAttention)]
        self._performers = performers if interval is not None else []
        self._interval = interval
        self._seed = int(torch.randint(2**31, ())) if self._performers else 0
        self._batches = 0

    @torch.compiler.disable  # type: ignore[untyped-decorator]  # else recompiled for each batch
    def forward(self) -> None:
        """Count a training batch, and draw new projections if it is time."""
        if self._interval is None or not self._performers:
            return
        draws, over = divmod(self._batches, self._interval)
        if draws and not over:
            self._draw(draws)
        self._batches += 1

    def _draw(self, number: int) -> None:
        for index, performer in enumerate(self._performers):
            device = performer.fast_attn.projection_matrix.device
            on = [] if device.type == "cpu" else [device]
            with torch.random.fork_rng(devices=on, device_type=device.type if on else "cuda"):
                torch.manual_seed(hash((self._seed, number, index)) % 2**63)
                performer.redraw_projection_matrix()

    def get_extra_state(self) -> dict[str, int]:
        """What a checkpoint keeps besides the projections themselves."""
        return {"seed": self._seed, "batches": self._batches}

    def set_extra_state(self, state: dict[str, int]) -> None:
        """Resume from a checkpoint."""
        self._seed, self._batches = int(state["seed"]), int(state["batches"])


def _part(name: str, make: Any, kwargs: Any, kind: str, problems: list[str]) -> Part | None:
    return part(make, None, kwargs, Fields(name, name, f"{name}_kwargs"), kind, problems)


def _layer(
    channels: int,
    heads: int,
    dropout: float,
    attention: str,
    attention_kwargs: Mapping[str, Any],
    norm: Part,
    activation: Part,
) -> GPSConv:
    between = nn.Sequential(nn.Linear(channels, channels), nn.ReLU(), nn.Linear(channels, channels))
    fields = Fields("attn_type", "attn_type", "attn_kwargs")
    arguments = {
        "heads": heads,
        "dropout": dropout,
        "act": built(activation),
        "norm": None,
        "attn_type": attention,
        "attn_kwargs": dict(attention_kwargs),
    }
    layer = built(Part(GPSConv, [], arguments, fields), channels, GINConv(between, train_eps=True))
    assert isinstance(layer, GPSConv)
    # GPSConv itself would share one norm among its three places.
    layer.norm1, layer.norm2, layer.norm3 = (
        built(with_width(norm, channels), factory=True) for _ in range(3)
    )
    layer.norm_with_batch = "batch" in signature(layer.norm1.forward).parameters
    return layer
