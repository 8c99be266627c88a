"""The `model` section of a configuration, and how what it describes is applied to graphs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import global_mean_pool

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.pyobject import PyObject
from castoff.trainers.configuration.yaml_text import read_yaml
from castoff.trainers.gnn.models import GNNModel
from castoff.trainers.gnn.models.section import applied, model_of
from tests.trainers.gnn.models.graphs import WIDTH, batch

SHORT: dict[str, Any] = {
    "encoder_type": "Encoder",
    "encoder_args": [WIDTH, [8]],
    "pooling_layers": ["mean"],
    "downstream_tasks": [["Linear", [8, 1]]],
}


class Own(nn.Module):
    """Somebody's network, with another name for the graph of each node."""

    def __init__(self, width: int, outputs: int = 1):
        super().__init__()
        self.linear = nn.Linear(width, outputs)

    def forward(self, x: Tensor, edge_index: Tensor, graph_of: Tensor) -> Tensor:
        return self.linear(global_mean_pool(x, graph_of))  # type: ignore[no-any-return]


def own(width: int) -> nn.Module:
    return Own(width)


class Nosy(nn.Module):
    """Says what it was given."""

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_weight: Any = None,
        graph_features: Any = None,
        num_graphs: int | None = None,
        batch: Any = None,
    ) -> Any:
        return edge_weight, graph_features, num_graphs, batch


class Deaf(nn.Module):
    """Takes nothing but a graph."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return x


@pytest.mark.parametrize("name", [{}, {"type": "GNNModel"}, {"type": GNNModel}])
def test_a_network_by_its_bare_name_or_none(name: dict[str, Any]) -> None:
    model = model_of({**name, **SHORT})
    assert isinstance(model, GNNModel)
    assert applied(model)(model, batch(3, 4, 0))[0].shape == (3, 1)


@pytest.mark.parametrize(
    "section",
    [
        {"width": WIDTH, "outputs": 2},
        {"args": [WIDTH, 2]},
        {"args": [WIDTH], "kwargs": {"outputs": 2}},
        {"kwargs": {"width": WIDTH, "outputs": 2}},
    ],
)
def test_a_network_of_ones_own(section: dict[str, Any]) -> None:
    model = model_of({"type": PyObject(f"{__name__}.Own"), **section})
    assert applied(model)(model, batch(3, 4)).shape == (2, 2)


def test_a_function_makes_a_network() -> None:
    assert isinstance(model_of({"type": own, "width": WIDTH}), Own)


def test_a_network_gets_what_it_names() -> None:
    some = batch(3, 4)
    weight, features, number, graph_of = applied(Nosy())(Nosy(), some)
    assert (weight, number) == (None, 2)
    assert torch.equal(features, some.graph_features)
    assert torch.equal(graph_of, some.batch)
    assert torch.equal(applied(Deaf())(Deaf(), some), some.x)


def test_graph_features_reach_the_parts_that_take_them() -> None:
    """Graphs may have some that a network without a part for them does not see."""
    deaf = model_of(SHORT)
    applied(deaf)(deaf, batch(3, 4))
    head = {"downstream_tasks": [["Linear", [10, 1]]]}
    model = model_of(
        {**SHORT, **head, "graph_features_net_type": "Linear", "graph_features_net_args": [3, 2]}
    )
    some = batch(3, 4)
    out = applied(model)(model, some)[0]
    some.graph_features += 1
    assert not torch.allclose(out, applied(model)(model, some)[0])
    del some.graph_features
    with pytest.raises(ConfigError, match="the graphs have no graph_features"):
        applied(model)(model, some)


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ({}, "model.type: is missing; write GNNModel"),
        (
            {"type": "GNModel"},
            "model.type: is 'GNModel', but no model is known by that name; did you mean GNNM",
        ),
        ({"type": 3}, "model.type: is 3, but takes a class or function"),
        (
            {**SHORT, "poling_layers": []},
            "model.poling_layers: there is no such field; did you mean pooling_l",
        ),
        ({"type": "GNNModel"}, "model.encoder_type: is missing"),
        ({"type": Own, "widht": 3}, "model.widht: Own takes no such argument; did you mean width?"),
        ({"type": Own, "args": [1, 2, 3]}, "model.args: has 3 arguments, but Own takes at most 2"),
        ({"type": Own, "args": 3}, "model.args: is 3, but takes a list of arguments"),
        ({"type": dict, "width": 3}, "model.type: dict returned a dict, but a layer is needed"),
    ],
)
def test_sections_that_make_no_sense(section: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        model_of(section)
    assert error.value.problems[0].startswith(says)


def test_an_error_inside_ones_own_class_keeps_its_place() -> None:
    with pytest.raises(RuntimeError, match="negative dimension") as error:
        model_of({"type": Own, "width": -3})
    assert __file__ in {str(entry.path) for entry in error.traceback}


def test_quantumgravs_configuration_is_read_unchanged() -> None:
    """Its classifier, with this package's name where its own stood."""
    section = read_yaml("""
      encoder_type: !pyobject castoff.trainers.gnn.models.GNNBlock
      encoder_args: [5, 32]
      encoder_kwargs:
        dropout: 0.3
        with_skip: True
        gnn_layer_type: !pyobject torch_geometric.nn.conv.GCNConv
        gnn_layer_args: []
        gnn_layer_kwargs: {cached: False, bias: True, add_self_loops: True}
        normalizer_type: !pyobject torch.nn.BatchNorm1d
        norm_args: [32]
        norm_kwargs: {eps: 0.00001, momentum: 0.2}
        activation_type: !pyobject torch.nn.ReLU
        skip_args: [5, 32]
        skip_kwargs: {weight_initializer: "glorot"}
      downstream_tasks:
        - [
            !pyobject castoff.trainers.gnn.models.LinearSequential,
            [[[32, 1]], [!pyobject torch.nn.Identity]],
            {linear_kwargs: [{bias: True}], activation_kwargs: [{}]},
          ]
      pooling_layers:
        - [!pyobject torch_geometric.nn.global_mean_pool, [], {}]
      active_tasks:
        0: True
    """)
    model = model_of(section)
    assert applied(model)(model, batch(4, 5))[0].shape == (2, 1)
    assert set(model.state_dict()) == {  # names that weights trained there have
        *(f"encoder.conv.{name}" for name in ("bias", "lin.weight")),
        *(f"encoder.normalizer.{name}" for name in ("weight", "bias", "running_mean", "running_var")),
        "encoder.normalizer.num_batches_tracked",
        "encoder.skip.proj.weight",
        *(f"downstream_tasks.0.layers.0.{name}" for name in ("weight", "bias")),
    }
