"""What the network is worth: beside Myrheim and Meyer's estimator, and beside a straight line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy
import numpy.typing

from trainers.core.table import aligned
from trainers.gnn.causets.order import ordering_fraction

if TYPE_CHECKING:
    from trainers.gnn.data import Causets

Numbers = numpy.typing.NDArray[numpy.float64]

ENOUGH = 1000
"""So many training sets are made for the line: more would not move it."""


def linear_error(train: Causets, test: Causets) -> float | None:
    """Mean absolute error, on the test set's manifold-like sets, of a line through the ordering
    fractions and dimensions of the training set's (least squares); None where there are too few.
    """
    fractions, dimensions = _pairs(train, ENOUGH)
    seen, true = _pairs(test, len(test))
    if len(numpy.unique(fractions)) < 2 or not len(seen):
        return None
    slope, offset = numpy.polyfit(fractions, dimensions, 1)
    return float(numpy.abs(slope * seen + offset - true).mean())


def _pairs(sets: Causets, most: int) -> tuple[Numbers, Numbers]:
    """The ordering fractions and dimensions of the manifold-like sets among the first ones."""
    found = [sets.causet(index) for index in range(min(len(sets), most))]
    pairs = [(ordering_fraction(order), dimension) for order, dimension in found if dimension]
    return numpy.array([pair[0] for pair in pairs]), numpy.array([float(pair[1]) for pair in pairs])


def table(measures: Mapping[str, float], line: float | None) -> str:
    """The comparison in words: of what was measured, which an inactive head is not."""
    rows = [
        ("test accuracy, manifold-like or not", measures.get("accuracy")),
        ("mean error of the dimension, this network", measures.get("dimension_error")),
        ("  Myrheim-Meyer estimator", measures.get("estimator_error")),
        ("  linear fit on the ordering fraction", line),
    ]
    return aligned({name: value for name, value in rows if value is not None})
