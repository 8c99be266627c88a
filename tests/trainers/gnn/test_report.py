"""What stands beside the network: a straight line, and the words of the comparison."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy
import pytest

from trainers.core.table import aligned
from trainers.gnn.causets.order import Order, ordering_fraction
from trainers.gnn.data import Causets
from trainers.gnn.report import linear_error, table


class Given(Causets):
    """Orders of four elements with so many relations, and their dimensions."""

    def __init__(self, *sets: tuple[int, int]):
        super().__init__(len(sets))
        self.sets = sets

    def causet(self, index: int) -> tuple[Order, int]:
        related, dimension = self.sets[index]
        order = numpy.zeros((4, 4), dtype=bool)
        for row, column in list(zip(*numpy.triu_indices(4, k=1), strict=True))[:related]:
            order[row, column] = True
        return order, dimension


def test_a_line_is_drawn_through_what_lies_on_one() -> None:
    """Fractions 1, 2/3 and 1/3 with dimensions 2, 3 and 4: 5 - 3 times the fraction. 0 is no manifold."""
    train = Given((6, 2), (4, 3), (2, 4), (6, 0), (0, 0))
    assert linear_error(train, Given((6, 2), (4, 3), (5, 0))) == pytest.approx(0)
    assert linear_error(train, Given((3, 3), (0, 4))) == pytest.approx((0.5 + 1) / 2)


def test_it_is_the_line_of_least_squares() -> None:
    train, test = Causets(120, mean=16), Causets(80, mean=16, first=120)

    def pairs(sets: Causets) -> Iterator[tuple[float, int]]:
        for index in range(len(sets)):
            order, dimension = sets.causet(index)
            if dimension:
                yield ordering_fraction(order), dimension

    x, y = (numpy.array(each, dtype=float) for each in zip(*pairs(train), strict=True))
    solution, *_ = numpy.linalg.lstsq(numpy.column_stack([x, numpy.ones_like(x)]), y)
    errors = [abs(solution @ [fraction, 1] - dimension) for fraction, dimension in pairs(test)]
    assert linear_error(train, test) == pytest.approx(float(numpy.mean(errors)))


@pytest.mark.parametrize(
    ("train", "test"),
    [
        (Given(), Given((6, 2))),
        (Given((6, 0)), Given((6, 2))),
        (Given((6, 2), (6, 3)), Given((6, 2))),
        (Given((6, 2), (3, 3)), Given((6, 0))),
        (Given((6, 2), (3, 3)), Given()),
    ],
)
def test_too_few_for_a_line(train: Causets, test: Causets) -> None:
    assert linear_error(train, test) is None


MEASURES = {"loss": 0.2, "accuracy": 0.987654, "dimension_error": 0.25, "estimator_error": 0.1 / 3}


def test_the_table() -> None:
    assert table(MEASURES, 0.5).splitlines() == [
        "test accuracy, manifold-like or not        0.9877",
        "mean error of the dimension, this network  0.2500",
        "  Myrheim-Meyer estimator                  0.0333",
        "  linear fit on the ordering fraction      0.5000",
    ]


def test_the_table_of_one_head() -> None:
    (only,) = table({"loss": 1.0, "accuracy": 0.5}, None).splitlines()
    assert only == "test accuracy, manifold-like or not  0.5000"
    rest = {name: value for name, value in MEASURES.items() if name != "accuracy"}
    assert [line.split()[-1] for line in table(rest, None).splitlines()] == ["0.2500", "0.0333"]
    assert table({}, None) == ""


def test_numbers_stand_one_below_the_other() -> None:
    assert aligned({"test loss": 1.0, "test f1": math.nan}) == "test loss  1.0000\ntest f1    nan"
