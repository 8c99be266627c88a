"""What the network is worth: beside Myrheim and Meyer's estimator, and beside a straight line."""

from __future__ import annotations

from collections.abc import Mapping

import numpy
import numpy.typing

from trainers.gnn.data import Causets

Numbers = numpy.typing.NDArray[numpy.float64]


def linear_error(train: Causets, test: Causets) -> float:
    """Mean absolute error, on the test set's manifold-like sets, of a line through the ordering
    fractions and dimensions of the training set's (least squares).
    """
    fractions, dimensions = _pairs(train)
    slope, offset = numpy.polyfit(fractions, dimensions, 1)
    seen, true = _pairs(test)
    return float(numpy.abs(slope * seen + offset - true).mean())


def _pairs(sets: Causets) -> tuple[Numbers, Numbers]:
    graphs = [sets[index] for index in range(len(sets))]
    manifold = [graph for graph in graphs if float(graph.manifold) > 0]
    return (
        numpy.array([float(graph.ordering_fraction) for graph in manifold]),
        numpy.array([float(graph.dimension) for graph in manifold]),
    )


def table(measures: Mapping[str, float], line: float) -> str:
    """The comparison in words."""
    rows = [
        ("test accuracy, manifold-like or not", f"{measures['accuracy']:.4f}"),
        ("mean error of the dimension, this network", f"{measures['dimension_error']:.4f}"),
        ("  Myrheim-Meyer estimator", f"{measures['estimator_error']:.4f}"),
        ("  linear fit on the ordering fraction", f"{line:.4f}"),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:{width}}  {value}" for name, value in rows)
