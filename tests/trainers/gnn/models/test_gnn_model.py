"""The network in QuantumGrav's schema: what comes out of it, and what is said of a wrong one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch
from torch_geometric.nn import global_max_pool, global_mean_pool

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.gnn.models import GNNModel
from tests.trainers.gnn.models.graphs import WIDTH, batch, graph, permuted

PLAIN: dict[str, Any] = {
    "encoder_type": "Encoder",
    "encoder_args": [WIDTH, [8, 6]],
    "pooling_layers": ["mean", "max"],
    "downstream_tasks": [["LinearSequential", [[12, 4, 1]]], ["Linear", [12, 3]]],
}
"""Two heads on two poolings."""


def made(**other: Any) -> GNNModel:
    torch.manual_seed(0)
    return GNNModel(**{**PLAIN, **other})


def judging(**other: Any) -> GNNModel:
    """In eval mode, when its batch norms have seen something."""
    model = made(**other)
    answer(model, batch(9, 7, 5, 8))
    return model.eval()


def answer(model: nn.Module, some: Batch, **more: Any) -> dict[int, Tensor]:
    out: dict[int, Tensor] = model(some.x, some.edge_index, some.batch, size=some.num_graphs, **more)
    return out


def problems(**other: Any) -> list[str]:
    with pytest.raises(ConfigError) as error:
        made(**other)
    return error.value.problems


def test_every_head_gives_a_row_for_each_graph() -> None:
    out = answer(made(), batch(4, 1, 6))
    assert {number: tuple(each.shape) for number, each in out.items()} == {0: (3, 1), 1: (3, 3)}


def test_the_numbering_of_nodes_means_nothing() -> None:
    model = judging()
    some = [graph(size, size) for size in (5, 8)]
    turned = [permuted(each, torch.randperm(len(each.x))) for each in some]
    one, other = answer(model, Batch.from_data_list(some)), answer(model, Batch.from_data_list(turned))
    torch.testing.assert_close(one, other)
    assert not torch.allclose(one[0][0], one[0][1])


def test_a_batch_is_its_graphs_one_by_one() -> None:
    """So it is for a batch of one graph, one without edges and one that is a node alone."""
    model = judging()
    some = [graph(6), graph(4, edges=0), graph(1, edges=0), graph(3)]
    together = answer(model, Batch.from_data_list(some))
    for number in (0, 1):
        alone = torch.cat([answer(model, Batch.from_data_list([each]))[number] for each in some])
        torch.testing.assert_close(together[number], alone)
        bare = torch.cat([model(each.x, each.edge_index)[number] for each in some])  # no batch: one graph
        torch.testing.assert_close(together[number], bare)


@pytest.mark.parametrize("pooling", ["mean", "max", "sum", "min", "std", "softmax"])
@pytest.mark.parametrize("sizes", [(4, 3, 0), (4, 0, 3), (0, 2)])
def test_empty_graphs_have_a_row(pooling: str, sizes: tuple[int, ...]) -> None:
    """Also at the end, where each node's graph alone does not tell of them."""
    out = answer(judging(pooling_layers=[pooling], downstream_tasks=[["Linear", [6, 1]]]), batch(*sizes))
    assert out[0].shape == (len(sizes), 1)
    assert torch.isfinite(out[0]).all()


def test_poolings_are_concatenated() -> None:
    model = judging()
    some = batch(4, 6)
    nodes = model.encoder(some.x, some.edge_index)
    rows = torch.cat([global_mean_pool(nodes, some.batch), global_max_pool(nodes, some.batch)], dim=1)
    torch.testing.assert_close(answer(model, some)[1], model.downstream_tasks[1](rows))


@pytest.mark.parametrize("asked", [{1: False}, {"1": False}, {0: True, 1: False}])
def test_an_inactive_head_is_frozen_and_has_no_output(asked: Any) -> None:
    """`--set model.active_tasks.1=false` leaves the number as text."""
    model = made(active_tasks=asked)
    out = answer(model, batch(3, 4))
    assert set(out) == {0}
    out[0].sum().backward()
    wanting = {name for name, each in model.named_parameters() if each.requires_grad}
    assert wanting == {name for name, each in model.named_parameters() if each.grad is not None}
    assert not any(name.startswith("downstream_tasks.1") for name in wanting)


def test_every_problem_is_reported_at_once() -> None:
    given = problems(
        encoder_type="Encodr",
        pooling_layers=["mean", "maxx"],
        downstream_tasks=[["LinearSequential", [[[8, 4], [5, 1]]]], []],
        active_tasks={2: True, 1: "no"},
    )
    begin = [each.split(": ")[0] for each in given]
    assert begin == [
        "model.encoder_type",
        "model.pooling_layers[1]",
        "model.downstream_tasks[1]",
        "model.active_tasks.2",
        "model.active_tasks.1",
        "model.downstream_tasks[0][1][0][1]",
    ]
    assert "did you mean Encoder?" in given[0]
    assert "did you mean max?" in given[1]


def featured(**other: Any) -> GNNModel:
    return made(
        graph_features_net_type="LinearSequential",
        graph_features_net_args=[[3, 2]],
        downstream_tasks=[["Linear", [14, 1]]],
        **other,
    )


def test_graph_features_are_concatenated_with_the_pooled_ones() -> None:
    model, some = featured().eval(), batch(3, 4)
    rows = model.get_embeddings(some.x, some.edge_index, some.batch)
    both = torch.cat([rows, model.graph_features_net(some.graph_features)], dim=1)  # type: ignore[misc]
    expected = model.downstream_tasks[0](both)
    torch.testing.assert_close(answer(model, some, graph_features=some.graph_features)[0], expected)


def test_graph_features_belong_to_a_network_for_them() -> None:
    some = batch(3, 4)
    with pytest.raises(ConfigError, match="graph_features_net_type: is given, but the graphs have no"):
        answer(featured(), some)
    with pytest.raises(
        ConfigError, match="graph_features_net_type: is missing, but graph features are passed"
    ):
        answer(made(), some, graph_features=some.graph_features)


@pytest.mark.parametrize("kind", ["sum", "mean", "max"])
def test_rows_of_one_width_can_become_one(kind: str) -> None:
    model = made(aggregate_pooling_type=kind, downstream_tasks=[["Linear", [6, 1]]]).eval()
    some = batch(3, 4)
    rows = torch.stack(model.pooled(model.encoder(some.x, some.edge_index), some.batch, 2))
    expected = {"sum": rows.sum(0), "mean": rows.mean(0), "max": rows.amax(0)}[kind]
    torch.testing.assert_close(model.get_embeddings(some.x, some.edge_index, some.batch), expected)


class Latent(nn.Module):
    """Asks for what it needs."""

    def forward(self, nodes: Tensor, edge_index: Tensor, batch: Tensor, num_graphs: int) -> Tensor:
        assert edge_index.shape[0] == 2
        return torch.zeros(num_graphs, nodes.shape[1]).index_add(0, batch, nodes)


def test_a_latent_model_takes_the_place_of_pooling() -> None:
    head = [["Linear", [6, 1]]]
    model = made(pooling_layers=None, latent_model_type=Latent, downstream_tasks=head)
    pooled = made(pooling_layers=["sum"], downstream_tasks=head)
    some = batch(3, 4, 0)
    torch.testing.assert_close(answer(model.eval(), some), answer(pooled.eval(), some))


def test_without_pooling_a_head_judges_nodes() -> None:
    model = made(pooling_layers=None, downstream_tasks=[["Linear", [6, 2]]])
    assert answer(model, batch(3, 4))[0].shape == (7, 2)


def test_the_encoder_gets_what_edges_carry() -> None:
    model, some = made(encoder_kwargs={"convolution": "gcn"}).eval(), batch(3, 4)
    assert not torch.equal(
        answer(model, some)[0], answer(model, some, edge_weight=torch.rand(some.num_edges))[0]
    )


def test_autocast_and_double_precision() -> None:
    some = batch(5, 6)
    for convolution in ("gcn", "sage", "gat", "gin"):
        for norm in ("batch", "graph", "pair", "layer"):
            model = made(encoder_kwargs={"convolution": convolution, "norm": norm})
            with torch.autocast("cpu", torch.bfloat16):
                out = answer(model, some)[0]
            out.float().sum().backward()
            assert out.dtype == torch.bfloat16
            assert torch.isfinite(out).all()
    some.x = some.x.double()
    assert answer(made().double(), some)[0].dtype == torch.float64


def test_weights_are_kept_by_names_that_last(tmp_path: Path) -> None:
    model = judging()
    parts = {name.split(".")[0] for name in featured().state_dict()}
    assert parts == {"encoder", "graph_features_net", "downstream_tasks"}
    model.save(tmp_path / "weights")
    for section in (PLAIN, {"type": "GNNModel", **PLAIN}):
        again = GNNModel.load(tmp_path / "weights", section).eval()
        torch.testing.assert_close(answer(again, batch(3)), answer(model, batch(3)))
    with pytest.raises(ConfigError, match=r"model\.type: is <class .*Linear'>, but this makes a GNNModel"):
        GNNModel.from_config({"type": torch.nn.Linear, **PLAIN})


def test_heads_can_be_switched_before_training() -> None:
    model = made(active_tasks={1: False})
    model.set_task_active(1)
    assert set(answer(model, batch(3))) == {0, 1}
    assert all(each.requires_grad for each in model.parameters())
    model.set_task_inactive(0)
    assert set(answer(model, batch(3))) == {1}
    assert not any(each.requires_grad for each in model.downstream_tasks[0].parameters())
    with pytest.raises(ValueError, match="task 1 is the only active one"):
        model.set_task_inactive(1)
    with pytest.raises(KeyError, match="there is no task 2"):
        model.set_task_active(2)


def test_what_an_active_head_shares_is_trained_and_what_was_frozen_stays_so() -> None:
    shared, frozen = nn.Linear(12, 1), nn.Linear(12, 2).requires_grad_(False)
    model = made(downstream_tasks=[shared, shared, frozen], active_tasks={1: False})
    assert shared.weight.requires_grad
    assert not frozen.weight.requires_grad
    assert model.downstream_tasks[0] is shared


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"encoder_type": None}, "model.encoder_type: is missing; name the module that makes node"),
        ({"downstream_tasks": None}, "model.downstream_tasks: is missing; write a list of heads"),
        ({"downstream_tasks": []}, "model.downstream_tasks: is [], but takes a list of heads"),
        ({"downstream_tasks": [[]]}, "model.downstream_tasks[0]: is [], but takes [type, args, kwargs]"),
        ({"downstream_tasks": [["Linear", 3]]}, "model.downstream_tasks[0][1]: is 3, but takes a list"),
        (
            {"downstream_tasks": [["Linear", [3], [1]]]},
            "model.downstream_tasks[0][2]: is [1], but takes argum",
        ),
        (
            {"downstream_tasks": [{"typ": "Linear"}]},
            "model.downstream_tasks[0].typ: there is no such field; did",
        ),
        ({"downstream_tasks": [{"args": []}]}, "model.downstream_tasks[0].type: is missing"),
        (
            {"pooling_layers": "mean"},
            "model.pooling_layers: is 'mean', but takes a list of some, as in [mean, max]",
        ),
        ({"pooling_layers": []}, "model.pooling_layers: is [], but takes a list"),
        ({"pooling_layers": [None]}, "model.pooling_layers[0]: is None, but takes"),
        (
            {"pooling_layers": None, "aggregate_pooling_type": "cat"},
            "model.aggregate_pooling_type: is given, but",
        ),
        (
            {"aggregate_graph_features_type": "cat"},
            "model.aggregate_graph_features_type: is given, but graph_f",
        ),
        (
            {"graph_features_net_args": [3]},
            "model.graph_features_net_args: is given, but model.graph_features_n",
        ),
        ({"latent_model_type": Latent}, "model.latent_model_type: is given, and pooling_layers, too"),
        ({"active_tasks": [True]}, "model.active_tasks: is [True], but takes true or false by number"),
        ({"active_tasks": {-1: False}}, "model.active_tasks.-1: there is no such task; there are 0 to 1"),
        ({"active_tasks": {0: False, "1": False}}, "model.active_tasks: switches every task off"),
        ({"encoder_args": [WIDTH, [8, 0]]}, "model.encoder_args[1][1]: is 0, but takes a whole number"),
        (
            {"encoder_type": nn.Linear(3, 3), "encoder_args": [3]},
            "model.encoder_args: is given, but model.encoder_type is a Linear that exists already",
        ),
    ],
)
def test_models_that_make_no_sense(given: dict[str, Any], says: str) -> None:
    assert problems(**given)[0].startswith(says)


class Selfish(nn.Module):
    """Somebody's encoder that does not say how wide nodes are, and fails on those of a trial."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        raise IndexError("not before there are data")


class Narrow(nn.Module):
    """Somebody's head, of a width that it does not say."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(7, 1)

    def forward(self, rows: Tensor) -> Tensor:
        out: Tensor = self.inner(rows)
        return out


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"downstream_tasks": [["Linear", [6, 1]]]},
            "model.downstream_tasks[0]: Linear takes 6 numbers per row, but gets the output of "
            "pooling_layers (global_mean_pool, global_max_pool), 12 numbers per row",
        ),
        (
            {"downstream_tasks": [Narrow()]},
            "model.downstream_tasks[0]: Narrow does not take the output of pooling_layers "
            "(global_mean_pool, global_max_pool), 12 numbers per row: mat1 and mat2 shapes cannot be "
            "multiplied",
        ),
        (
            {"aggregate_pooling_type": torch.cat},
            "model.aggregate_pooling_type: cat returns a tensor of shape (6, 6) for 3 graphs, but must "
            "return one row per graph; to concatenate, use cat, or torch.cat with dim: 1",
        ),
        (
            {"encoder_type": "GPSModel", "encoder_args": [WIDTH, 6, 8, 2, 1]},
            "model.pooling_layers[0]: global_mean_pool does not take the output of the encoder (GPSModel)",
        ),
        (
            {"pooling_layers": [nn.Identity()]},
            "model.pooling_layers[0]: Identity does not take the output of the encoder (Encoder), 6 numbe",
        ),
        (
            {"latent_model_type": "Linear", "latent_model_args": [5, 2], "pooling_layers": None},
            "model.latent_model_type: Linear takes 5 numbers per row, but gets the output of the encoder (E",
        ),
        (
            {
                "graph_features_net_type": "Linear",
                "graph_features_net_args": [3, 2],
                "aggregate_graph_features_type": "sum",
            },
            "model.aggregate_graph_features_type: sum does not take the output of pooling_layers (global_",
        ),
        (
            {"encoder_type": "Sequential", "encoder_args": [[["GNNBlock", [5, 8]], ["GNNBlock", [4, 6]]]]},
            "model.encoder_type: Sequential does not take 5 numbers per node: mat1 and mat2 shapes "
            "cannot be ",
        ),
    ],
)
def test_parts_that_do_not_fit_are_reported_before_there_are_data(given: dict[str, Any], says: str) -> None:
    assert problems(**given)[0].startswith(says)


def test_what_cannot_be_known_is_not_judged() -> None:
    made(encoder_type=Selfish(), encoder_args=[], downstream_tasks=[["Linear", [99, 1]]])
    lazy = nn.LazyLinear(4)
    assert made(encoder_type=lazy, encoder_args=[]).encoder is lazy


def test_every_head_that_does_not_fit_is_reported() -> None:
    given = problems(downstream_tasks=[["Linear", [6, 1]], ["Linear", [12, 1]], ["Linear", [5, 1]]])
    assert [each.split(":")[0] for each in given] == [
        "model.downstream_tasks[0]",
        "model.downstream_tasks[2]",
    ]
