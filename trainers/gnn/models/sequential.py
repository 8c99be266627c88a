"""Layers one after the other, whose inputs and outputs have names."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from torch import Tensor, nn
from torch_geometric.nn import Sequential as Wired

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.gnn.models.checks import a_list, a_switch
from castoff.trainers.gnn.models.joints import width_into
from castoff.trainers.gnn.models.parts import Fields, built, part, part_of
from castoff.trainers.gnn.models.skip_connection import SkipConnection

_MEANINGS = {
    "batch": "batch",
    "size": "size",
    "batch_size": "size",
    "edge_attr": "edge_attr",
    "edge_weight": "edge_weight",
}


class Sequential(nn.Module):
    """torch_geometric's Sequential, made from descriptions.

    Args:
        layers: Each is `[type, args, kwargs, signature]`. A signature such as `"x, edge_index -> x"` names
            a layer's inputs and output; without an arrow the output is x. Without a signature, a layer gets x
            and the next parameters of its own forward, as far as `forward_signature` has them.
        forward_signature: The inputs; `edge_attr`, `edge_weight` and `batch_size` can be added.
        with_skip: Add x to the output, by a `SkipConnection`.
        skip_args, skip_kwargs: Arguments of this `SkipConnection`.

    Raises:
        ConfigError: lists every argument that makes no sense.
    """

    def __init__(
        self,
        layers: Sequence[Sequence[Any]],
        forward_signature: str = "x, edge_index, batch",
        with_skip: bool = False,
        skip_args: Sequence[Any] | None = None,
        skip_kwargs: Mapping[str, Any] | None = None,
    ):
        super().__init__()
        problems = a_list("layers", layers, "layers, each as [type, args, kwargs, signature]")
        problems += a_switch(with_skip=with_skip)
        names = _names(forward_signature, problems)
        wired = [
            _layer(layer, f"layers[{number}]", names, problems)
            for number, layer in enumerate([] if problems else layers)
        ]
        skip = None
        if with_skip is True:
            fields = Fields("with_skip", "skip_args", "skip_kwargs")
            skip = part(SkipConnection, skip_args, skip_kwargs, fields, "layer", problems)
        if problems:
            raise ConfigError(problems)
        self.layers = Wired(forward_signature, [layer for layer in wired if layer is not None])
        self.skipconnection = built(skip) if skip is not None else None
        self._extra = [name for name in names if name not in ("x", "edge_index")]
        self.in_dim = width_into(wired[0][0]) if wired[0] is not None else None

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        batch: Tensor | None = None,
        edge_attr: Tensor | None = None,
        edge_weight: Tensor | None = None,
        batch_size: int | None = None,
    ) -> Any:
        """The output of the last layer."""
        available = {"batch": batch, "edge_attr": edge_attr, "edge_weight": edge_weight, "size": batch_size}
        out = self.layers(x, edge_index, *(available[_MEANINGS[name]] for name in self._extra))
        return out if self.skipconnection is None else self.skipconnection(x, out)


def _names(signature: Any, problems: list[str]) -> list[str]:
    """The names in a forward signature."""
    names = [name.strip() for name in signature.split(",")] if isinstance(signature, str) else []
    if names[:2] != ["x", "edge_index"] or any(name not in _MEANINGS for name in names[2:]):
        problems.append(
            f"forward_signature: is {signature!r}, but takes x, edge_index and perhaps some of "
            f"{', '.join(_MEANINGS)}, as in 'x, edge_index, batch'"
        )
        return []
    return names


def _layer(value: Any, field: str, names: list[str], problems: list[str]) -> tuple[nn.Module, str] | None:
    """A layer and its signature."""
    signature = None
    if isinstance(value, (list, tuple)) and len(value) == 4:
        value, signature = value[:3], value[3]
        if not isinstance(signature, str) or not signature.strip():
            problems.append(f"{field}[3]: is {signature!r}, but takes a signature, as 'x, edge_index -> x'")
            return None
    described = part_of(value, field, "layer", problems)
    if described is None:
        return None
    try:
        module = built(described)
    except ConfigError as error:
        problems += error.problems
        return None
    if signature is None:
        signature = _signature(module, names)
    elif "->" not in signature:
        signature = f"{signature} -> x"
    return module, signature


def _signature(module: nn.Module, names: list[str]) -> str:
    """A layer's signature: its forward's parameters, up to the first that is not available."""
    parameters = list(inspect.signature(getattr(module, "function", None) or module.forward).parameters)[1:]
    available = takewhile(lambda name: name in names, parameters)
    return f"{', '.join(['x', *available])} -> x"
