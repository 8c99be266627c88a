"""An encoder: blocks one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.gnn.models.checks import a_list, positive
from castoff.trainers.gnn.models.gnn_block import GNNBlock

_FIELDS = {
    "gnn_layer_type": "convolution",
    "gnn_layer_kwargs": "convolution_kwargs",
    "normalizer_type": "norm",
    "activation_type": "activation",
}
"""The encoder's names for `GNNBlock`'s arguments."""


class Encoder(nn.Module):
    """Maps node features (nodes, in_dim) to (nodes, hidden[-1]), by a block for each number of `hidden`.

    Args:
        in_dim: Numbers per node.
        hidden: The width after each block.
        convolution, convolution_kwargs: The convolution of each block.
        norm, norm_kwargs: The norm after each convolution.
        activation, activation_kwargs: The activation after each norm.
        dropout: The dropout rate after each block.
        with_skip: Add each block's input to its output.

    Raises:
        ConfigError: lists every argument that makes no sense.
    """

    def __init__(
        self,
        in_dim: int,
        hidden: Sequence[int] = (64, 64, 64),
        convolution: Any = "sage",
        norm: Any = "batch",
        activation: Any = "relu",
        dropout: float = 0.1,
        with_skip: bool = True,
        convolution_kwargs: Mapping[str, Any] | None = None,
        norm_kwargs: Mapping[str, Any] | None = None,
        activation_kwargs: Mapping[str, Any] | None = None,
    ):
        super().__init__()
        problems = positive(in_dim=in_dim) + a_list("hidden", hidden, "widths, as in [64, 64]")
        if not problems:
            problems += positive(**{f"hidden[{number}]": width for number, width in enumerate(hidden)})
        if problems:
            raise ConfigError(problems)
        self.in_dim, self.out_dim = in_dim, hidden[-1]
        try:
            self.blocks = nn.ModuleList(
                GNNBlock(
                    before,
                    after,
                    dropout,
                    with_skip,
                    gnn_layer_type=convolution,
                    gnn_layer_kwargs=convolution_kwargs,
                    normalizer_type=norm,
                    norm_kwargs=norm_kwargs,
                    activation_type=activation,
                    activation_kwargs=activation_kwargs,
                )
                for before, after in pairwise([in_dim, *hidden])
            )
        except ConfigError as error:
            raise ConfigError([_in_own_words(problem) for problem in error.problems]) from error

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        edge_attr: Tensor | None = None,
        edge_weight: Tensor | None = None,
        batch_size: int | None = None,
    ) -> Tensor:
        """Node features after the last block; `batch_size` is the number of graphs."""
        for block in self.blocks:
            x = block(x, edge_index, batch, edge_attr, edge_weight, batch_size)
        return x


def _in_own_words(problem: str) -> str:
    for theirs, ours in _FIELDS.items():
        problem = problem.replace(theirs, ours)
    return problem
