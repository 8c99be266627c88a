"""The graph network: blocks, poolings, heads, and that a graph's numbering means nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data

from trainers.gnn.data import FEATURES, Causets
from trainers.gnn.model import GNNBlock, GNNModel

CONVS = ["gcn", "sage"]


def graphs(number: int = 4) -> list[Data]:
    sets = Causets(number, mean=20, seed=1)
    return [sets[index] for index in range(number)]


def answer(model: nn.Module, some: list[Data]) -> dict[int, torch.Tensor]:
    batch = Batch.from_data_list(some)
    out: dict[int, torch.Tensor] = model(batch.x, batch.edge_index, batch.batch, batch.num_graphs)
    return out


def made(**given: Any) -> GNNModel:
    """A model whose batch norms have seen something, in eval mode."""
    torch.manual_seed(0)
    model = GNNModel(FEATURES, (8, 8, 6), **given)
    answer(model, graphs(8))
    return model.eval()


@pytest.mark.parametrize("conv", CONVS)
@pytest.mark.parametrize("widths", [(5, 5), (5, 7)])
@pytest.mark.parametrize("with_skip", [True, False])
def test_a_block_is_what_it_says(conv: Any, widths: tuple[int, int], with_skip: bool) -> None:
    torch.manual_seed(0)
    block = GNNBlock(*widths, conv=conv, with_skip=with_skip).eval()
    graph = graphs(1)[0]
    out = block(graph.x, graph.edge_index)
    inner = torch.relu(block.norm(block.conv(graph.x, graph.edge_index)))
    skips = [name for name, _ in block.named_parameters() if name.startswith("skip")]
    if not with_skip:
        assert not skips
        assert torch.equal(out, inner)
    elif widths[0] == widths[1]:
        assert not skips
        assert torch.equal(out, inner + graph.x)
    else:
        assert skips == ["skip.weight"]
        assert torch.equal(out, inner + graph.x @ block.get_parameter("skip.weight").T)
    assert out.shape == (len(graph.x), widths[1])


def test_the_two_convolutions_are_two() -> None:
    """GCN weighs neighbours by degrees, SAGE takes their mean beside the node itself."""
    x = torch.tensor([[1.0], [2.0], [6.0]])
    edges = torch.tensor([[0, 1, 0, 2], [1, 0, 2, 0]])
    for conv, expected in (
        ("sage", [1 + 4.0, 2 + 1.0, 6 + 1.0]),
        ("gcn", [1 / 3 + 8 / 6**0.5, 1 / 6**0.5 + 1, 1 / 6**0.5 + 3]),
    ):
        block = GNNBlock(1, 1, conv=conv)  # type: ignore[arg-type]
        for name, parameter in block.conv.named_parameters():
            nn.init.constant_(parameter, 0.0 if name.endswith("bias") else 1.0)
        assert block.conv(x, edges).flatten().tolist() == pytest.approx(expected)


def test_dropout_is_for_training() -> None:
    block = GNNBlock(5, 5, dropout=0.5)
    graph = graphs(1)[0]
    assert not torch.equal(block(graph.x, graph.edge_index), block(graph.x, graph.edge_index))
    block.eval()
    assert torch.equal(block(graph.x, graph.edge_index), block(graph.x, graph.edge_index))


@pytest.mark.parametrize("pooling", [["mean"], ["max"], ["sum"], ["sum", "mean", "max"]])
def test_poolings_stand_side_by_side(pooling: list[str]) -> None:
    model = made(pooling=pooling)
    some = graphs()
    expected = []
    for graph in some:
        x = graph.x
        for block in model.blocks:
            x = block(x, graph.edge_index)
        each = {"mean": x.mean(0), "max": x.max(0).values, "sum": x.sum(0)}
        expected.append(torch.cat([each[name] for name in pooling]))
    head = model.heads[1]
    torch.testing.assert_close(answer(model, some)[1], head(torch.stack(expected)))
    assert head[0].in_features == 6 * len(pooling)  # type: ignore[index]


def test_heads_have_the_widths_asked_for() -> None:
    out = answer(made(heads=(1, 4, 2)), graphs(3))
    assert {number: tuple(each.shape) for number, each in out.items()} == {0: (3, 1), 1: (3, 4), 2: (3, 2)}


@pytest.mark.parametrize("asked", [{1: False}, {"1": False}, {0: True, 1: False}])
def test_an_inactive_head_is_frozen_and_says_nothing(asked: Any) -> None:
    """Q16; `--set task_kwargs.model.active_tasks.1=false` leaves the number as text."""
    model = made(active_tasks=asked)
    assert model.active == [0]
    assert set(answer(model, graphs())) == {0}
    assert not any(parameter.requires_grad for parameter in model.heads[1].parameters())
    trained = [*model.blocks.parameters(), *model.heads[0].parameters()]
    assert all(parameter.requires_grad for parameter in trained)
    answer(model, graphs())[0].sum().backward()
    assert all(parameter.grad is not None for parameter in trained)


@pytest.mark.parametrize("conv", CONVS)
def test_the_numbering_of_nodes_means_nothing(conv: Any) -> None:
    model = made(conv=conv, pooling=["mean", "max", "sum"])
    some, turned = graphs(), []
    for number, graph in enumerate(some):
        order = torch.randperm(len(graph.x), generator=torch.Generator().manual_seed(number))
        place = torch.argsort(order)  # where each node went
        shuffled = torch.randperm(graph.edge_index.shape[1])
        turned.append(Data(x=graph.x[order], edge_index=place[graph.edge_index][:, shuffled]))
    one, other = answer(model, some), answer(model, turned)
    for number in (0, 1):
        torch.testing.assert_close(one[number], other[number])
    assert not torch.allclose(one[0][0], one[0][2])  # it does look at the graphs


@pytest.mark.parametrize("conv", CONVS)
def test_a_batch_is_its_graphs_one_by_one(conv: Any) -> None:
    model = made(conv=conv)
    some = graphs(6)
    together = answer(model, some)
    for number in (0, 1):
        alone = torch.cat([answer(model, [graph])[number] for graph in some])
        torch.testing.assert_close(together[number], alone)


def test_a_graph_without_links() -> None:
    bare = Data(x=torch.rand(3, FEATURES), edge_index=torch.empty(2, 0, dtype=torch.int64))
    for conv in CONVS:
        assert all(bool(torch.isfinite(each).all()) for each in answer(made(conv=conv), [bare]).values())


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"conv": "gat"}, "conv: is 'gat', but takes gcn, sage"),
        ({"pooling": "mean"}, "pooling: is 'mean', but takes a list of some of mean, max, sum"),
        ({"pooling": []}, "pooling: is "),
        ({"pooling": ["mean", "median"]}, "pooling: is "),
        ({"hidden": 64}, "hidden: is 64, but takes a list of whole numbers"),
        ({"hidden": []}, "hidden: is "),
        ({"hidden": [8, 0]}, "hidden: is "),
        ({"hidden": ["8"]}, "hidden: is "),
        ({"heads": [1.5]}, "heads: is "),
        ({"dropout": 1.0}, "dropout: is 1.0, but takes a number from 0 to below 1"),
        ({"dropout": "half"}, "dropout: is 'half'"),
        ({"with_skip": "no"}, "with_skip: is 'no', but takes true or false"),
        ({"active_tasks": {2: True}}, "active_tasks: there is no task 2, but 0 to 1"),
        ({"active_tasks": {"one": True}}, "active_tasks: there is no task 'one'"),
        ({"active_tasks": {-1: False}}, "active_tasks: there is no task -1"),
        ({"active_tasks": {1: "no"}}, "active_tasks: 1 is 'no', but takes true or false"),
        ({"active_tasks": [True]}, "active_tasks: is [True], but takes true or false by number"),
        ({"active_tasks": {0: False, 1: False}}, "active_tasks: switches every task off"),
    ],
)
def test_arguments_that_make_no_sense(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError) as error:
        GNNModel(FEATURES, **given)
    assert str(error.value).startswith(says)
