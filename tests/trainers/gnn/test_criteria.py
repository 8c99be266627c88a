"""The built-in criterion and network: values by hand, and what does not fit in words."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch_geometric.data import Batch

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.gnn.causets.samples import sample
from castoff.trainers.gnn.causets.settings import Causets
from castoff.trainers.gnn.criteria import BEND, WEIGHT, manifold_and_dimension
from castoff.trainers.gnn.defaults import CRITERION, MODEL, MONITORS
from castoff.trainers.gnn.models.gnn_model import GNNModel
from castoff.trainers.gnn.names import found


def batch_of(*rows: tuple[float, float]) -> Batch:
    return Batch(y=torch.tensor(rows))


def outputs_of(logits: list[float], dimensions: list[float]) -> dict[int, torch.Tensor]:
    return {0: torch.tensor(logits)[:, None], 1: torch.tensor(dimensions)[:, None]}


def test_the_mean_is_over_graphs() -> None:
    """Of three graphs the third has no dimension, so what is said of it there does not count."""
    outputs = outputs_of([0.0, 2.0, -1.0], [2.5, 3.02, 99.0])
    found = manifold_and_dimension(outputs, batch_of((1, 2), (0, 3), (0, 0)))
    entropy = (math.log(2) + math.log1p(math.exp(2)) + math.log1p(math.exp(-1))) / 3
    errors = ((0.5 - BEND / 2) + 0.02**2 / (2 * BEND)) / 3
    assert float(found) == pytest.approx(entropy + WEIGHT * errors, rel=1e-4)


def test_a_batch_without_dimensions_has_a_gradient_all_the_same() -> None:
    outputs = {key: each.requires_grad_() for key, each in outputs_of([0.3], [2.0]).items()}
    manifold_and_dimension(outputs, batch_of((0, 0))).backward()
    gradients = [outputs[head].grad for head in (0, 1)]
    assert [bool(each.any()) for each in gradients if each is not None] == [True, False]


def test_heads_that_are_not_active_do_not_count() -> None:
    both = outputs_of([0.5, -0.5], [2.5, 3.5])
    batch = batch_of((1, 2), (0, 3))
    alone = [float(manifold_and_dimension({head: both[head]}, batch)) for head in (0, 1)]
    assert sum(alone) == pytest.approx(float(manifold_and_dimension(both, batch)))
    assert alone[1] == pytest.approx(WEIGHT * (0.5 - BEND / 2))


@pytest.mark.parametrize(
    ("outputs", "batch", "problem"),
    [
        (torch.zeros(1, 1), batch_of((1, 2)), "for the heads 0 and 1, but the model has a Tensor"),
        ({2: torch.zeros(1, 1)}, batch_of((1, 2)), r"but the model has heads \[2\]"),
        ({0: torch.zeros(1, 3)}, batch_of((1, 2)), r"from head 0, whose output has the shape \[1, 3\]"),
        ({0: torch.zeros(1, 1)}, Batch(y=torch.zeros(1)), r"y of two columns, .* but it is \[1\]"),
        ({0: torch.zeros(1, 1)}, Batch(x=torch.zeros(1)), "y of two columns, .* but it is None"),
    ],
)
def test_what_does_not_fit(outputs: Any, batch: Batch, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        manifold_and_dimension(outputs, batch)


def test_the_defaults_fit_to_what_is_generated() -> None:
    torch.manual_seed(0)
    model = GNNModel.from_config({name: value for name, value in MODEL.items() if name != "type"})
    batch = Batch.from_data_list([sample(Causets(size=(8, 20)), 0, index) for index in range(4)])
    outputs = model(batch.x, batch.edge_index, batch.batch, batch.graph_features)
    assert found(CRITERION, "criterion", "criterion") is manifold_and_dimension
    assert torch.isfinite(manifold_and_dimension(outputs, batch))
    assert {head: tuple(output.shape) for head, output in outputs.items()} == {0: (4, 1), 1: (4, 1)}
    assert [each["name"] for each in MONITORS] == ["accuracy", "f1", "dimension_error"]
