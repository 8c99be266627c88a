"""One step of messages between neighbours: convolution, norm, activation, skip connection, dropout."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.gnn.models.checks import a_share, a_switch, positive
from castoff.trainers.gnn.models.inputs import given, taken
from castoff.trainers.gnn.models.parts import Fields, Part, built, name_of, of_libraries, part
from castoff.trainers.gnn.models.skip_connection import SkipConnection
from castoff.trainers.gnn.models.trial import trial


class GNNBlock(nn.Module):
    """Maps node features (nodes, in_dim) to (nodes, out_dim).

    Args:
        in_dim, out_dim: Numbers per node, before and after the block.
        dropout: The dropout rate at the end of the block.
        with_skip: Add the input to the output, through a linear map if the widths differ.
        gnn_layer_type, gnn_layer_args, gnn_layer_kwargs: The convolution, made with in_dim, out_dim and
            these arguments. It and the norm get `batch`, `batch_size`, `edge_attr` and `edge_weight` if their
            forward has such a parameter; without `edge_dim`, a convolution does not get `edge_attr`.
        normalizer_type, norm_args, norm_kwargs: The norm. Without arguments, a norm that needs a width gets
            out_dim.
        activation_type, activation_args, activation_kwargs: The activation.
        skip_args, skip_kwargs: Arguments of `SkipConnection`: `in_channels` and `out_channels` (by default
            in_dim and out_dim), and `weight_initializer`.

    Raises:
        ConfigError: lists every argument that makes no sense, or parts that do not fit together.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        dropout: float = 0.3,
        with_skip: bool = True,
        gnn_layer_type: Any = "gcn",
        gnn_layer_args: Sequence[Any] | None = None,
        gnn_layer_kwargs: Mapping[str, Any] | None = None,
        normalizer_type: Any = "identity",
        norm_args: Sequence[Any] | None = None,
        norm_kwargs: Mapping[str, Any] | None = None,
        activation_type: Any = "relu",
        activation_args: Sequence[Any] | None = None,
        activation_kwargs: Mapping[str, Any] | None = None,
        skip_args: Sequence[Any] | None = None,
        skip_kwargs: Mapping[str, Any] | None = None,
    ):
        super().__init__()
        problems = [*positive(in_dim=in_dim, out_dim=out_dim)]
        problems += a_share(dropout=dropout) + a_switch(with_skip=with_skip)
        conv = _part("gnn_layer", gnn_layer_type, gnn_layer_args, gnn_layer_kwargs, "convolution", problems)
        norm = _part("norm", normalizer_type, norm_args, norm_kwargs, "norm", problems, of="normalizer")
        act = _part("activation", activation_type, activation_args, activation_kwargs, "activation", problems)
        skip = _part("skip", SkipConnection, skip_args or [in_dim, out_dim], skip_kwargs, "layer", problems)
        if problems or conv is None or norm is None or act is None or skip is None:
            raise ConfigError(problems)
        self.in_dim, self.out_dim = in_dim, out_dim
        self.conv = _built(conv, problems, in_dim, out_dim, factory=True)
        self.normalizer = _built(with_width(norm, out_dim), problems, factory=True)
        self.activation = _built(act, problems)
        self.skip = _built(skip, problems) if with_skip else None
        self.dropout = nn.Dropout(dropout)
        if problems:
            raise ConfigError(problems)
        self._to_conv = taken(self.conv, leaving=2)
        self._to_norm = taken(self.normalizer)
        self._try()

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        edge_attr: Tensor | None = None,
        edge_weight: Tensor | None = None,
        batch_size: int | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """Node features after the block; `batch_size` is the number of graphs.

        Convolution and norm get what their forward has parameters for; other arguments go to the convolution.
        """
        edges = given(
            self._to_conv, batch=batch, size=batch_size, edge_attr=edge_attr, edge_weight=edge_weight
        )
        out = self.conv(x, edge_index, **{**edges, **kwargs})
        out = self.activation(self.normalizer(out, **given(self._to_norm, batch=batch, size=batch_size)))
        if self.skip is not None:
            out = self.skip(x, out)
        answer: Tensor = self.dropout(out)
        return answer

    def _try(self) -> None:
        """Try the block with two nodes, so that widths that do not fit are reported before there are data.

        A convolution that cannot do without edge features is not tried.
        """
        nodes, edges = torch.zeros(2, self.in_dim), torch.tensor([[0, 1], [1, 0]])
        with trial(self):
            try:
                out = self.conv(nodes, edges)
            except Exception:  # noqa: BLE001  # whatever it may raise
                return  # it may need other inputs; if not, training fails
            if not isinstance(out, Tensor) or out.shape != (2, self.out_dim):
                raise ConfigError([f"gnn_layer_type: {name_of(self.conv)} {self._widths(out)}"])
            for field, layer in (("norm_args", self.normalizer), ("activation_type", self.activation)):
                out = self._tried(field, layer, out)
            if self.skip is not None:
                try:
                    self.skip(nodes, out)
                except RuntimeError as error:
                    problem = f"skip_args: the input has {self.in_dim} numbers per node, the output "
                    raise ConfigError([f"{problem}{self.out_dim}; leave skip_args out: {error}"]) from error

    def _tried(self, field: str, layer: nn.Module, out: Tensor) -> Tensor:
        try:
            after = layer(out)
        except Exception as error:
            if not of_libraries(error):
                raise
            problem = (
                f"{field}: {layer} does not take the {self.out_dim} numbers per node that the "
                "convolution returns"
            )
            raise ConfigError([f"{problem}: {error}"]) from error
        if not isinstance(after, Tensor) or after.shape != out.shape:
            raise ConfigError([f"{field}: {layer} changes the shape (nodes, {self.out_dim})"])
        return after

    def _widths(self, out: Any) -> str:
        if not isinstance(out, Tensor):
            return f"returns a {type(out).__name__}, but a block needs one tensor"
        problem = f"returns {out.shape[-1]} numbers per node, but out_dim is {self.out_dim}"
        heads = getattr(self.conv, "heads", 1)
        if heads != 1 and out.shape[-1] == heads * self.out_dim:
            return f"{problem}: its {heads} heads are concatenated; write gnn_layer_kwargs: {{concat: false}}"
        return problem


def _part(
    name: str, make: Any, args: Any, kwargs: Any, kind: str, problems: list[str], *, of: str | None = None
) -> Part | None:
    fields = Fields(f"{of or name}_type", f"{name}_args", f"{name}_kwargs")
    if make is None:
        problems.append(f"{fields.type}: is None, but takes a {kind}; write identity to have none")
        return None
    return part(make, args, kwargs, fields, kind, problems)


def _built(described: Part, problems: list[str], *first: Any, factory: bool = False) -> nn.Module:
    try:
        return built(described, *first, factory=factory)
    except ConfigError as error:
        problems += error.problems
        return nn.Identity()


def with_width(norm: Part, width: int) -> Part:
    """Give a norm the width as its first argument, if it needs one and has none."""
    if norm.args or isinstance(norm.make, nn.Module):
        return norm
    try:
        first = next(iter(inspect.signature(norm.make).parameters.values()), None)
    except (TypeError, ValueError):
        return norm
    if (
        first is None
        or first.kind not in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD)
        or first.default is not first.empty
        or first.name in norm.kwargs
    ):
        return norm
    return norm._replace(args=[width])
