"""What a network sees of a causal set: numbers of each element, and of the whole."""

from __future__ import annotations

import math

import numpy
import numpy.typing

from trainers.gnn.causets.estimators import midpoint_scaling, myrheim_meyer, myrheim_meyer_inside
from trainers.gnn.causets.order import Order, chains, ordering_fraction, reversed_in_time

Numbers = numpy.typing.NDArray[numpy.float32]

NODE = (
    "past",
    "future",
    "links to the past",
    "links to the future",
    "height",
    "depth",
)
"""Of each element: shares of all that precede and follow it; square roots of how many do so with nothing in
between; the longest chains down and up from it, in parts of the set's longest."""

SCALARS = (
    "ordering fraction",
    "log size",
    "Myrheim-Meyer",
    "Myrheim-Meyer inside",
    "midpoint scaling",
    "height",
    "links",
    "ends",
)
"""Of the whole: as their functions in `estimators` say; the longest chain in parts of the square root of the
size; links to an element; and the share of elements without a past or without a future."""


def node_features(order: Order, bare: Order) -> Numbers:
    """(elements, NODE), of an order and its links."""
    number = max(len(order) - 1, 1)
    height, depth = heights(order)
    longest = max(int(height.max(initial=0)), 1)
    columns = [
        order.sum(0) / number,
        order.sum(1) / number,
        numpy.sqrt(bare.sum(0)),
        numpy.sqrt(bare.sum(1)),
        height / longest,
        depth / longest,
    ]
    return numpy.column_stack(columns).astype(numpy.float32)


def heights(order: Order) -> tuple[numpy.typing.NDArray[numpy.int64], numpy.typing.NDArray[numpy.int64]]:
    """The longest chain down from each element, and the longest one up."""
    return chains(order), chains(reversed_in_time(order))[::-1]


def scalars(order: Order, bare: Order) -> Numbers:
    """(SCALARS,), of an order and its links."""
    number = len(order)
    longest = int(chains(order).max(initial=0)) + 1
    ends = (~order.any(axis=0)).sum() + (~order.any(axis=1)).sum()
    values = [
        ordering_fraction(order),
        math.log(number),
        myrheim_meyer(order),
        myrheim_meyer_inside(order),
        midpoint_scaling(order),
        longest / math.sqrt(number),
        bare.sum() / number,
        ends / number,
    ]
    return numpy.array(values, dtype=numpy.float32)
