"""Linear layers in a row, and layers of any kind wired by their signatures."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric.nn import GCNConv, GraphNorm

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.gnn.models import GNNBlock, LinearSequential, Sequential
from tests.trainers.gnn.models.graphs import WIDTH, batch


def test_pairs_and_widths_are_the_same() -> None:
    torch.manual_seed(0)
    one = LinearSequential([[6, 4], [4, 1]], [nn.ReLU, "identity"])
    torch.manual_seed(0)
    other = LinearSequential([6, 4, 1])
    rows = torch.rand(3, 6)
    assert torch.equal(one(rows), other(rows))
    assert [type(layer).__name__ for layer in other.layers] == ["Linear", "ReLU", "Linear", "Identity"]


def test_each_layer_has_its_arguments() -> None:
    made = LinearSequential(
        [6, 4, 1],
        ["leaky_relu", "sigmoid"],
        linear_kwargs=[{"bias": False}, {"weight_initializer": "glorot"}],
        activation_kwargs=[{"negative_slope": 0.3}, {}],
    )
    assert made.get_submodule("layers.0").bias is None
    assert made.get_submodule("layers.1").negative_slope == 0.3
    assert ((made(torch.rand(3, 6)) > 0) & (made(torch.rand(3, 6)) < 1)).all()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"dims": []}, "dims: is [], but takes a list of pairs of widths"),
        ({"dims": 64}, "dims: is 64, but takes a list"),
        ({"dims": [64]}, "dims[0]: is 64, but takes two whole numbers"),
        ({"dims": [[64, 0]]}, "dims[0]: is [64, 0], but takes two whole numbers"),
        ({"dims": [[64, 32], [16, 1]]}, "dims[1]: takes 16 numbers, but the layer before it returns 32"),
        ({"dims": [8, 4, 1], "activations": ["relu"]}, "activations: are 1, but dims has 2 layers"),
        (
            {"dims": [8, 4, 1], "activations": ["relu", "reluu"]},
            "activations[1]: is 'reluu', but no activation",
        ),
        ({"dims": [8, 4, 1], "activations": "reluu"}, "activations: is 'reluu'"),
        ({"dims": [8, 4], "linear_kwargs": {}}, "linear_kwargs: is {}, but takes a list"),
        ({"dims": [8, 4], "linear_kwargs": [{}, {}]}, "linear_kwargs: has 2 entries, but dims has 1 layers"),
        ({"dims": [8, 4], "linear_kwargs": [{"bais": 1}]}, "linear_kwargs[0].bais: Linear takes no such arg"),
        (
            {"dims": [8, 4], "activations": ["relu"], "activation_kwargs": [{"a": 1}]},
            "activation_kwargs[0].a: ",
        ),
    ],
)
def test_linear_layers_that_make_no_sense(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        LinearSequential(**given)
    assert error.value.problems[0].startswith(says)


def test_layers_are_wired_by_their_signatures() -> None:
    torch.manual_seed(0)
    made = Sequential(
        [
            ["GCNConv", [WIDTH, 6], {}, "x, edge_index -> h"],
            ["ReLU", [], {}, "h -> h"],
            ["GraphNorm", [6], {}, "h, batch -> x"],
            [GNNBlock, [6, 4]],
        ],
        with_skip=True,
        skip_args=[WIDTH, 4],
    ).eval()
    some = batch(4, 6)
    conv, norm, block = GCNConv(WIDTH, 6), GraphNorm(6), GNNBlock(6, 4).eval()
    names = ["layers.module_0.", "layers.module_2.", "layers.module_3."]
    for layer, prefix in zip((conv, norm, block), names, strict=True):
        state = {name: each for name, each in made.state_dict().items() if name.startswith(prefix)}
        layer.load_state_dict({name.removeprefix(prefix): each for name, each in state.items()})
    hidden = norm(torch.relu(conv(some.x, some.edge_index)), some.batch)
    projected = some.x @ made.get_parameter("skipconnection.proj.weight").T
    expected = block(hidden, some.edge_index) + projected
    torch.testing.assert_close(made(some.x, some.edge_index, some.batch), expected)


def test_without_a_signature_a_layer_takes_what_its_forward_names() -> None:
    """A norm over graphs gets them, from a block or by itself."""
    torch.manual_seed(0)
    layers: list[list[Any]] = [[GNNBlock, [WIDTH, 6], {"normalizer_type": "graph"}], ["PairNorm"], ["ReLU"]]
    made = Sequential(layers).eval()
    some = batch(4, 6, 3)
    together = made(some.x, some.edge_index, some.batch)
    alone = torch.cat([made(each.x, each.edge_index) for each in some.to_data_list()])
    torch.testing.assert_close(together, alone)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"layers": []}, "layers: is [], but takes a list of layers"),
        ({"layers": [["GCNCov", [5, 5]]]}, "layers[0][0]: is 'GCNCov', but no layer is known by that name"),
        ({"layers": [["GCNConv", [5, 5], {}, ""]]}, "layers[0][3]: is '', but takes a signature"),
        (
            {"layers": [["GNNBlock", [5, 5], {"dropout": 7}]]},
            "layers[0][2].dropout: is 7, but takes a number",
        ),
        (
            {"layers": ["ReLU"], "forward_signature": "x, y"},
            "forward_signature: is 'x, y', but takes x, edge_i",
        ),
        (
            {"layers": ["ReLU"], "with_skip": True},
            "skip_kwargs.in_channels: is missing; SkipConnection needs it",
        ),
        ({"layers": ["ReLU"], "with_skip": 1}, "with_skip: is 1, but takes true or false"),
    ],
)
def test_sequences_that_make_no_sense(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        Sequential(**given)
    assert error.value.problems[0].startswith(says)
