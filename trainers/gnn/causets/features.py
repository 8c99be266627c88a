"""A network's input from a causal set: numbers of each element, and of the whole."""

from __future__ import annotations

import math

import numpy
import numpy.typing

from castoff.trainers.gnn.causets.estimators import midpoint_scaling, myrheim_meyer, myrheim_meyer_inside
from castoff.trainers.gnn.causets.order import (
    Counts,
    Order,
    chains,
    ordering_fraction,
    reversed_in_time,
    steps,
)

Numbers = numpy.typing.NDArray[numpy.float32]

_BETWEEN = (1, 2, 3)

NODE = (
    "past",
    "future",
    "links to the past",
    "links to the future",
    "height",
    "depth",
    "fraction in the past",
    "fraction in the future",
    *(f"{name} over {between}" for between in _BETWEEN for name in ("past", "future")),
)
"""Features of each element: the fractions of all elements that precede and that follow it; the square
roots of its numbers of links to the past and to the future; the longest chains below and above it,
relative to the longest chain in the set; the ordering fractions of its past and of its future; the square
roots of how many elements precede and follow it with exactly one, two or three in between, which in a
spacetime depend on its dimension (Glaser and Surya, Phys. Rev. D 88, 124026, 2013)."""

SCALARS = (
    "ordering fraction",
    "log size",
    "Myrheim-Meyer",
    "Myrheim-Meyer inside",
    "midpoint scaling",
    "height",
    "links",
    "ends",
    *(f"relations over {between}" for between in _BETWEEN),
)
"""Features of the whole set: the results of the functions with these names in `order` and `estimators`; the
logarithm of the size; the longest chain relative to the square root of the size; links per element; elements
without a past or without a future, per element; relations with one, two or three elements in between, per
element.
"""


def node_features(order: Order, bare: Order) -> Numbers:
    """The features (elements, NODE) of an order's elements; `bare` are its links."""
    number = max(len(order) - 1, 1)
    height, depth = chains(order), chains(reversed_in_time(order))[::-1]
    longest = max(int(height.max(initial=0)), 1)
    past, future = order.sum(0), order.sum(1)
    columns = [
        past / number,
        future / number,
        numpy.sqrt(bare.sum(0)),
        numpy.sqrt(bare.sum(1)),
        height / longest,
        depth / longest,
        _fractions(past, past @ order),
        _fractions(future, order @ future),
    ]
    sizes = steps(order)
    for between in _BETWEEN:
        over = order & (sizes == between)
        columns += [numpy.sqrt(over.sum(0)), numpy.sqrt(over.sum(1))]
    return numpy.column_stack(columns).astype(numpy.float32)


def _fractions(elements: Counts, related: Counts) -> numpy.typing.NDArray[numpy.float64]:
    """The ordering fractions of sets with these numbers of elements and related pairs; 0 if there is
    no pair.
    """
    fractions: numpy.typing.NDArray[numpy.float64] = related / numpy.maximum(elements * (elements - 1) / 2, 1)
    return fractions


def scalars(order: Order, bare: Order) -> Numbers:
    """The features (SCALARS,) of an order; `bare` are its links."""
    number = len(order)
    longest = int(chains(order).max(initial=0)) + 1
    ends = (~order.any(axis=0)).sum() + (~order.any(axis=1)).sum()
    sizes = steps(order)
    values = [
        ordering_fraction(order),
        math.log(max(number, 1)),
        myrheim_meyer(order),
        myrheim_meyer_inside(order),
        midpoint_scaling(order),
        longest / math.sqrt(max(number, 1)),
        bare.sum() / max(number, 1),
        ends / max(number, 1),
        *((order & (sizes == between)).sum() / max(number, 1) for between in _BETWEEN),
    ]
    return numpy.array(values, dtype=numpy.float32)
