"""Metrics of heads, against what is worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from castoff.trainers.configuration import config as core
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.gnn import monitors, names
from castoff.trainers.gnn.monitors import (
    F1,
    R2,
    Accuracy,
    MeanAbsoluteError,
    Precision,
    Recall,
    RocAuc,
    RootMeanSquaredError,
)
from castoff.trainers.task.prediction_metrics import Monitors


def logits(*values: float) -> list[dict[int, Tensor]]:
    """One head's outputs, in two batches."""
    column = torch.tensor(values)[:, None]
    return [{0: column[:2]}, {0: column[2:]}]


def column(*values: float) -> list[Tensor]:
    table = torch.tensor(values)[:, None]
    return [table[:2], table[2:]]


FOUND, WANTED = logits(1, 1, -1, -1, 2), column(1, 0, 1, 0, 1)
"""Two of three right that are 1, one of two that are 0."""

ONE, ZERO = 2 / 3, 1 / 2
"""The F1 scores: precision and recall are 2/3 for the one class, 1/2 for the other."""


@pytest.mark.parametrize(
    ("average", "score"),
    [
        ("macro", (ONE + ZERO) / 2),
        ("weighted", (3 * ONE + 2 * ZERO) / 5),
        ("micro", 3 / 5),
        ("binary", ONE),
        ("none", [ZERO, ONE]),
        (None, [ZERO, ONE]),
    ],
)
def test_f1(average: str | None, score: Any) -> None:
    assert F1(average)(FOUND, WANTED) == pytest.approx(score)


def test_precision_recall_accuracy() -> None:
    found = logits(1, 1, -1, 1, 1)
    assert Precision("binary")(found, WANTED) == pytest.approx(2 / 4)
    assert Recall("binary")(found, WANTED) == pytest.approx(2 / 3)
    assert Accuracy()(found, WANTED) == pytest.approx(2 / 5)


def test_of_several_outputs_the_largest_is_the_class() -> None:
    outputs = [{3: torch.tensor([[0.1, 0.9, 0.0], [0.5, 0.2, 0.1]])}, {3: torch.tensor([[0.1, 0.3, 0.2]])}]
    targets = [torch.tensor([[7, 1], [7, 0]]), torch.tensor([[7, 0]])]
    assert Accuracy(head=3, column=1)(outputs, targets) == pytest.approx(2 / 3)
    zero, one, two = F1("none", head=3, column=1)(outputs, targets)
    assert (zero, one) == (pytest.approx(2 / 3), pytest.approx(2 / 3))
    assert math.isnan(two), "it neither is there nor was predicted"
    assert F1(head=3, column=1)(outputs, targets) == pytest.approx(2 / 3), "so it does not count"


def test_errors_are_masked_by_another_column() -> None:
    """As a dimension's, which only manifold-like sets have."""
    outputs = [{1: torch.tensor([[2.5], [99.0]])}, {1: torch.tensor([[4.0]])}]
    targets = [torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[1.0, 3.0]])]
    of = {"head": 1, "column": 1, "where": 0}
    assert MeanAbsoluteError(**of)(outputs, targets) == pytest.approx(0.75)
    assert RootMeanSquaredError(**of)(outputs, targets) == pytest.approx(math.sqrt((0.25 + 1) / 2))
    assert R2(**of)(outputs, targets) == pytest.approx(1 - 1.25 / 0.5)
    nowhere = [torch.zeros(2, 2), torch.zeros(1, 2)]
    assert math.isnan(MeanAbsoluteError(**of)(outputs, nowhere))


def test_the_order_of_logits_by_themselves() -> None:
    assert RocAuc()(logits(-5, -6, 7, -7, -4), column(1, 0, 1, 0, 1)) == 1.0
    assert RocAuc()(logits(0, 0, 0, 0, 0), WANTED) == pytest.approx(0.5)
    assert math.isnan(RocAuc()(FOUND, column(1, 1, 1, 1, 1)))
    assert RocAuc()(logits(30, 20, 40, 25, 50), column(1, 0, 1, 0, 1)) == 1.0, "whose sigmoids are all 1"


@pytest.mark.parametrize("kind", [MeanAbsoluteError, RootMeanSquaredError, R2, RocAuc])
def test_a_model_that_gives_no_numbers_has_no_measure(kind: Any) -> None:
    """Training says so itself; a validation does not end it."""
    assert math.isnan(kind()(logits(math.nan, 1, 1, 1, 1), WANTED))


def test_a_tensor_is_an_only_head_and_a_row_a_column() -> None:
    assert Accuracy()([torch.tensor([1.0, -1.0])], [torch.tensor([1, 0])]) == 1.0


@pytest.mark.parametrize(
    ("monitor", "says"),
    [
        (Accuracy(head=2), "head: is 2, but the model returned the outputs of 0"),
        (Accuracy(column=1), "column: is 1, but the targets have columns 0 to 0"),
        (Accuracy(where=3), "where: is 3, but the targets have columns 0 to 0"),
    ],
)
def test_heads_and_columns_that_are_not_there(monitor: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        monitor(FOUND, WANTED)


@pytest.mark.parametrize(
    ("monitor", "outputs", "targets", "says"),
    [
        (Accuracy(), FOUND, column(1, 0, 0.5, 1, 1), "column: holds 0.5, but it takes whole numbers from 0"),
        (
            F1(),
            FOUND,
            column(1, 0, 2, 1, 1),
            "column: holds 2, but .* from 0 to 1, because the head has 2",
        ),
        (Accuracy(), FOUND, column(1, 0, 1), "the model returned 5 rows for 3 graphs"),
        (MeanAbsoluteError(), [torch.zeros(2, 3)], [torch.zeros(2)], "head: 0 returned 3 numbers per graph"),
        (Accuracy(head=1), [torch.zeros(2)], [torch.zeros(2)], "head: is 1, but .* not a dict of heads"),
        (Accuracy(), [(1, 2)], [torch.zeros(2)], "head: 0 returned a tuple of 2, but it takes a tensor"),
        (Accuracy(), FOUND, [[1, 2]], "the targets are a list of 2, but it takes y of shape"),
    ],
)
def test_what_cannot_be_compared(monitor: Any, outputs: Any, targets: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        monitor(outputs, targets)


@pytest.mark.parametrize("name", monitors.__all__)
def test_each_has_a_bare_name(name: str) -> None:
    assert names.found(name, "monitor", "monitor") is getattr(monitors, name)


def test_wrong_arguments_are_reported_with_their_place() -> None:
    given = [core.Monitor(name="f", monitor="F1", kwargs={"average": "makro", "head": -1})]
    with pytest.raises(ConfigError) as error:
        Monitors(given, "validation.validator.evaluator_tasks", names.found)
    place = "validation.validator.evaluator_tasks.0.kwargs"
    first, second = error.value.problems
    assert first == (
        f"{place}.average: is 'makro', but takes macro, weighted, micro, binary, none; did you mean macro?"
    )
    assert second == f"{place}.head: is -1, but takes a whole number of at least 0"


def test_the_guide_names_each() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "how-to" / "gnn.md").read_text(encoding="utf-8")
    there = {
        name
        for name, each in vars(monitors).items()
        if isinstance(each, type) and each.__module__ == monitors.__name__ and not name.startswith("_")
    }
    assert len(there) > 5 and {name for name in there if f"`{name}`" not in guide} == set()
