"""A skip connection: a layer's input, added to its output."""

from __future__ import annotations

from torch import Tensor, nn
from torch_geometric.nn.dense import Linear

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.gnn.models.checks import among, positive

_INITIALIZERS = ("glorot", "uniform", "kaiming_uniform")


class SkipConnection(nn.Module):
    """Adds a layer's input to its output, through a linear map without bias if the widths differ.

    Raises:
        ConfigError: lists every argument that makes no sense.
    """

    def __init__(self, in_channels: int, out_channels: int, weight_initializer: str | None = None):
        super().__init__()
        problems = [*positive(in_channels=in_channels, out_channels=out_channels)]
        if weight_initializer is not None:
            problems += among("weight_initializer", weight_initializer, _INITIALIZERS)
        if problems:
            raise ConfigError(problems)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.proj: nn.Module = (
            nn.Identity()
            if in_channels == out_channels
            else Linear(in_channels, out_channels, bias=False, weight_initializer=weight_initializer)
        )

    def forward(self, x_old: Tensor, x: Tensor) -> Tensor:
        """Add the input (rows, in_channels) to the output (rows, out_channels)."""
        total: Tensor = x + self.proj(x_old)
        return total
