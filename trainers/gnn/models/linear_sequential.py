"""Linear layers with activations between them, for heads and graph features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor, nn
from torch_geometric.nn.dense import Linear

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.gnn.models.checks import a_list
from castoff.trainers.gnn.models.parts import Fields, Part, built, part


class LinearSequential(nn.Module):
    """Maps (rows, first width) to (rows, last width).

    Args:
        dims: Pairs, such as `[[64, 32], [32, 1]]`, or widths, such as `[64, 32, 1]`.
        activations: A list with one activation after each layer, or one name for those between layers.
        linear_kwargs, activation_kwargs: A list with a mapping for each layer.

    Raises:
        ConfigError: lists every argument that makes no sense.
    """

    def __init__(
        self,
        dims: Sequence[Sequence[int]] | Sequence[int],
        activations: Sequence[Any] | Any = "relu",
        linear_kwargs: Sequence[Mapping[str, Any]] | None = None,
        activation_kwargs: Sequence[Mapping[str, Any]] | None = None,
    ):
        super().__init__()
        problems: list[str] = []
        pairs = _pairs(dims, problems)
        number = len(pairs)
        names = list(activations) if isinstance(activations, (list, tuple)) else None
        if names is None:
            names = [activations] * (number - 1) + ["identity"]
        if pairs and len(names) != number:
            problems.append(f"activations: are {len(names)}, but dims has {number} layers; give one for each")
        linear_arguments = _by_layer("linear_kwargs", linear_kwargs, number, problems)
        activation_arguments = _by_layer("activation_kwargs", activation_kwargs, number, problems)
        if problems:
            raise ConfigError(problems)
        layers: list[nn.Module] = []
        for index, (pair, name) in enumerate(zip(pairs, names, strict=True)):
            fields = Fields("dims", "dims", f"linear_kwargs[{index}]")
            _add(layers, Part(Linear, list(pair), dict(linear_arguments[index]), fields), problems)
            field = f"activations[{index}]" if isinstance(activations, (list, tuple)) else "activations"
            fields = Fields(field, field, f"activation_kwargs[{index}]")
            _add(
                layers,
                part(name, None, activation_arguments[index], fields, "activation", problems),
                problems,
            )
        if problems:
            raise ConfigError(list(dict.fromkeys(problems)))
        self.in_dim, self.out_dim = pairs[0][0], pairs[-1][1]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Map (rows, first width) to (rows, last width)."""
        answer: Tensor = self.layers(x)
        return answer


def _add(layers: list[nn.Module], described: Part | None, problems: list[str]) -> None:
    if described is None:
        return
    try:
        layers.append(built(described))
    except ConfigError as error:
        problems += error.problems


def _pairs(dims: Any, problems: list[str]) -> list[tuple[int, int]]:
    """The widths before and after each layer."""
    problems += a_list("dims", dims, "pairs of widths, as in [[64, 32], [32, 1]]")
    if problems:
        return []
    if all(type(width) is int and width >= 1 for width in dims) and len(dims) > 1:
        return list(pairwise(dims))
    for index, pair in enumerate(dims):
        both = isinstance(pair, (list, tuple)) and len(pair) == 2
        if not both or not all(type(width) is int and width >= 1 for width in pair):
            expected = "but takes two whole numbers of at least 1: the widths before and after the layer"
            problems.append(f"dims[{index}]: is {pair!r}, {expected}")
    if problems:
        return []
    for index, (before, after) in enumerate(pairwise(dims), 1):
        if before[1] != after[0]:
            problems.append(
                f"dims[{index}]: takes {after[0]} numbers, but the layer before it returns {before[1]}; "
                "make the two equal"
            )
    return [(pair[0], pair[1]) for pair in dims]


def _by_layer(name: str, mappings: Any, number: int, problems: list[str]) -> list[Mapping[str, Any]]:
    if mappings is None:
        return [{}] * number
    if not isinstance(mappings, (list, tuple)) or not all(isinstance(each, Mapping) for each in mappings):
        problems.append(f"{name}: is {mappings!r}, but takes a list, of arguments by name for each layer")
    elif number and len(mappings) != number:
        problems.append(
            f"{name}: has {len(mappings)} entries, but dims has {number} layers; give {{}} for none"
        )
    else:
        return list(mappings)
    return [{}] * number
