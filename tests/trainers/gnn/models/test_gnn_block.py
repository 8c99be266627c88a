"""A block, blocks one after the other, and what is said of a wrong one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, GINEConv, GraphNorm

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.pyobject import PyObject
from castoff.trainers.gnn.models import Encoder, GNNBlock, SkipConnection
from tests.trainers.gnn.models.graphs import WIDTH, batch, graph


@pytest.mark.parametrize("widths", [(5, 5), (5, 7)])
@pytest.mark.parametrize("with_skip", [True, False])
def test_a_block_is_what_it_says(widths: tuple[int, int], with_skip: bool) -> None:
    torch.manual_seed(0)
    block = GNNBlock(*widths, with_skip=with_skip, normalizer_type="layer", activation_type="tanh").eval()
    some = graph(6)
    inner = torch.tanh(block.normalizer(block.conv(some.x, some.edge_index)))
    out = block(some.x, some.edge_index)
    if not with_skip:
        assert torch.equal(out, inner)
    elif widths[0] == widths[1]:
        assert torch.equal(out, inner + some.x)
    else:
        assert torch.equal(out, inner + some.x @ block.get_parameter("skip.proj.weight").T)


def test_dropout_is_for_training() -> None:
    block, some = GNNBlock(WIDTH, 6, dropout=0.5), graph(6)
    assert not torch.equal(block(some.x, some.edge_index), block(some.x, some.edge_index))
    block.eval()
    assert torch.equal(block(some.x, some.edge_index), block(some.x, some.edge_index))


@pytest.mark.parametrize("convolution", ["gcn", "sage", "gat", "gatv2", "graph", "gin", "tag", "cheb"])
@pytest.mark.parametrize("norm", ["batch", "layer", "graph", "pair", "instance", "identity", "RMSNorm"])
def test_convolutions_and_norms_go_together(convolution: str, norm: str) -> None:
    more = {"K": 2} if convolution == "cheb" else {}
    encoder = Encoder(WIDTH, [6, 4], convolution, norm, convolution_kwargs=more)
    some = batch(4, 1, 6)
    out = encoder(some.x, some.edge_index, some.batch, batch_size=3)
    assert out.shape == (11, 4)
    out.sum().backward()
    assert all(each.grad is not None for each in encoder.parameters())


@pytest.mark.parametrize("norm", ["graph", "pair", "instance"])
def test_norms_over_a_graph_know_where_it_ends(norm: str) -> None:
    torch.manual_seed(0)
    encoder = Encoder(WIDTH, [6, 4], norm=norm).eval()
    some = batch(4, 5, 6)
    together = encoder(some.x, some.edge_index, some.batch)
    alone = torch.cat([encoder(each.x, each.edge_index) for each in some.to_data_list()])
    torch.testing.assert_close(together, alone)


@pytest.mark.parametrize("norm", ["batch", "graph", "pair", "layer"])
def test_a_batch_may_be_a_node_alone(norm: str) -> None:
    """torch's BatchNorm1d cannot train on it."""
    some = graph(1, edges=0)
    encoder = Encoder(WIDTH, [6], norm=norm)
    assert torch.isfinite(encoder(some.x, some.edge_index)).all()


def test_convolutions_get_what_edges_carry() -> None:
    """Where they have a place for it; GAT has one only if it was made with a width."""
    some = batch(4, 5)
    weight, attributes = torch.rand(some.num_edges), torch.rand(some.num_edges, 2)

    def changed(convolution: Any, **more: Any) -> bool:
        block = GNNBlock(WIDTH, 6, gnn_layer_type=convolution, gnn_layer_kwargs=more).eval()
        plain = block(some.x, some.edge_index)
        return not torch.equal(
            block(some.x, some.edge_index, edge_attr=attributes, edge_weight=weight), plain
        )

    assert changed("gcn")
    assert not changed("sage")
    assert not changed("gat")
    assert not changed("gatv2")
    assert changed("gat", edge_dim=2)


def gine(in_dim: int, out_dim: int, edge_dim: int) -> GINEConv:
    return GINEConv(nn.Linear(in_dim, out_dim), edge_dim=edge_dim)


def test_a_convolution_that_needs_edges_is_not_judged_without() -> None:
    block = GNNBlock(WIDTH, 6, gnn_layer_type=gine, gnn_layer_args=[2])
    some = graph(4)
    out = block(some.x, some.edge_index, edge_attr=torch.rand(some.num_edges, 2))
    assert out.shape == (4, 6)


def test_a_norm_is_given_its_width_where_it_needs_one() -> None:
    assert GNNBlock(5, 7, normalizer_type=GraphNorm).get_parameter("normalizer.weight").shape == (7,)
    named = GNNBlock(5, 7, normalizer_type=nn.BatchNorm1d, norm_args=[], norm_kwargs={"num_features": 7})
    assert named.get_parameter("normalizer.weight").shape == (7,)


def test_a_function_is_an_activation_too() -> None:
    block = GNNBlock(WIDTH, 4, activation_type=PyObject("torch.relu"), with_skip=False).eval()
    assert (block(graph(5).x, graph(5).edge_index) >= 0).all()


def test_trying_a_block_leaves_the_random_numbers_alone() -> None:
    """Or two ways to write a network would begin with other weights."""

    def weights() -> list[Tensor]:
        torch.manual_seed(0)
        conv = GCNConv(WIDTH, 4)
        return [*conv.parameters(), torch.rand(3)]

    torch.manual_seed(0)
    block = GNNBlock(WIDTH, 4, normalizer_type="identity", with_skip=False, dropout=0.5)
    after = [*block.conv.parameters(), torch.rand(3)]
    assert all(map(torch.equal, weights(), after))
    assert block.training
    assert block.conv.training


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"in_dim": 0}, "in_dim: is 0, but takes a whole number of at least 1"),
        ({"out_dim": "8"}, "out_dim: is '8', but takes a whole number"),
        ({"dropout": 1.0}, "dropout: is 1.0, but takes a number from 0 to below 1"),
        ({"with_skip": "no"}, "with_skip: is 'no', but takes true or false"),
        (
            {"gnn_layer_type": "gcm"},
            "gnn_layer_type: is 'gcm', but no convolution is known by that name; did",
        ),
        ({"gnn_layer_type": None}, "gnn_layer_type: is None, but takes a convolution"),
        ({"gnn_layer_kwargs": {"cashed": True}}, "gnn_layer_type: GCNConv(cashed=True) cannot be created: "),
        ({"gnn_layer_type": GATConv, "gnn_layer_args": 4}, "gnn_layer_args: is 4, but takes a list"),
        ({"gnn_layer_kwargs": [1]}, "gnn_layer_kwargs: is [1], but takes arguments by name"),
        (
            {"gnn_layer_type": "gat", "gnn_layer_kwargs": {"heads": 4}},
            "gnn_layer_type: GATConv returns 28 numbers per node, but out_dim is 7: its 4 heads",
        ),
        ({"gnn_layer_type": nn.Linear}, None),
        (
            {"normalizer_type": nn.BatchNorm1d, "norm_args": [32]},
            "norm_args: BatchNorm1d(32",
        ),
        (
            {"normalizer_type": "torch.nn.BatchNorm1d"},
            "normalizer_type: is the text 'torch.nn.BatchNorm1d'; ",
        ),
        ({"activation_type": "gelo"}, "activation_type: is 'gelo', but no activation is known by that name"),
        ({"activation_type": "glu"}, "activation_type: GLU(dim=-1) "),
        ({"skip_args": [5, 6]}, "skip_args: the input has 5 numbers per node, the output 7"),
        (
            {"skip_kwargs": {"weight_initializer": "glorod"}},
            "skip_kwargs.weight_initializer: is 'glorod', but",
        ),
        (
            {"activation_type": PyObject("QuantumGrav.models.GNNBlock")},
            "activation_type: !pyobject QuantumGrav.models.GNNBlock: there is no module QuantumGrav here; "
            "write !pyobject castoff.trainers.gnn.models.GNNBlock",
        ),
    ],
)
def test_blocks_that_make_no_sense(given: dict[str, Any], says: str | None) -> None:
    fields = {"in_dim": 5, "out_dim": 7, **given}
    if says is None:  # what fails on a graph may want more than a graph
        GNNBlock(**fields)
        return
    with pytest.raises(ConfigError) as error:
        GNNBlock(**fields)
    assert error.value.problems[0].startswith(says)


def test_an_encoders_errors_name_its_own_fields() -> None:
    with pytest.raises(ConfigError) as error:
        Encoder(5, [8], convolution="gcm", norm="bach", dropout=2)
    begin = [problem.split(":")[0] for problem in error.value.problems]
    assert begin == ["dropout", "convolution", "norm"]
    for hidden in (64, [], [8, 0], ["8"]):
        with pytest.raises(ConfigError, match="hidden"):
            Encoder(5, hidden)  # type: ignore[arg-type]


def test_a_skip_connection_has_no_weights_where_widths_agree() -> None:
    assert not list(SkipConnection(4, 4).parameters())
    rows = torch.rand(3, 4)
    assert torch.equal(SkipConnection(4, 4)(rows, rows), 2 * rows)
    with pytest.raises(ConfigError, match="in_channels: is 0"):
        SkipConnection(0, 4)
