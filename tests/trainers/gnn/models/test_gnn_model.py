"""The network in QuantumGrav's schema: what comes out of it, and what is said of a wrong one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Batch
from torch_geometric.nn import global_max_pool, global_mean_pool

from tests.trainers.gnn.models.graphs import WIDTH, batch, graph, permuted
from trainers.core.fields import ConfigError
from trainers.gnn.models import GNNModel

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


def test_poolings_stand_side_by_side() -> None:
    model = judging()
    some = batch(4, 6)
    nodes = model.encoder(some.x, some.edge_index)
    rows = torch.cat([global_mean_pool(nodes, some.batch), global_max_pool(nodes, some.batch)], dim=1)
    torch.testing.assert_close(answer(model, some)[1], model.downstream_tasks[1](rows))


@pytest.mark.parametrize("asked", [{1: False}, {"1": False}, {0: True, 1: False}])
def test_an_inactive_head_is_frozen_and_says_nothing(asked: Any) -> None:
    """`--set model.active_tasks.1=false` leaves the number as text."""
    model = made(active_tasks=asked)
    out = answer(model, batch(3, 4))
    assert set(out) == {0}
    out[0].sum().backward()
    wanting = {name for name, each in model.named_parameters() if each.requires_grad}
    assert wanting == {name for name, each in model.named_parameters() if each.grad is not None}
    assert not any(name.startswith("downstream_tasks.1") for name in wanting)


def test_every_problem_is_told_at_once() -> None:
    told = problems(
        encoder_type="Encodr",
        pooling_layers=["mean", "maxx"],
        downstream_tasks=[["LinearSequential", [[[8, 4], [5, 1]]]], []],
        active_tasks={2: True, 1: "no"},
    )
    begin = [each.split(": ")[0] for each in told]
    assert begin == [
        "model.encoder_type",
        "model.pooling_layers[1]",
        "model.downstream_tasks[1]",
        "model.active_tasks.2",
        "model.active_tasks.1",
        "model.downstream_tasks[0][1][0][1]",
    ]
    assert "did you mean Encoder?" in told[0]
    assert "did you mean max?" in told[1]
