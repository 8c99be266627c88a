"""Finite partial orders as matrices, and what is counted in them.

A causal set is a boolean matrix `order`, in which `order[i, j]` means that element i precedes j; elements are
numbered so that it is strictly upper triangular.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy
import numpy.typing

Order: TypeAlias = "numpy.typing.NDArray[numpy.bool_]"
Counts: TypeAlias = "numpy.typing.NDArray[numpy.int64]"


def closed(relation: Order) -> Order:
    """The transitive closure of a strictly upper triangular relation."""
    order = relation
    while True:
        wider: Order = order | (steps(order) > 0)
        if (wider == order).all():
            return wider
        order = wider


def steps(relation: Order) -> numpy.typing.NDArray[numpy.float32]:
    """The number of elements between the two elements of each pair; if the relation is an order, these are
    the sizes of its open intervals.

    They are whole numbers that float32 holds exactly, in whatever order they are added.
    """
    numbers = relation.astype(numpy.float32)
    return numbers @ numbers


def links(order: Order) -> Order:
    """The relations with nothing in between: the edges of the Hasse diagram."""
    bare: Order = order & (steps(order) == 0)
    return bare


def chains(order: Order) -> Counts:
    """The length of the longest chain that ends in each element, without the element itself."""
    longest = numpy.zeros(len(order), dtype=numpy.int64)
    waiting = order.sum(axis=0)  # earlier elements that have no level yet
    level, ready = 0, numpy.flatnonzero(waiting == 0)
    while len(ready):
        longest[ready] = level
        waiting[ready] = -1
        waiting -= order[ready].sum(axis=0)
        level, ready = level + 1, numpy.flatnonzero(waiting == 0)
    return longest


def reversed_in_time(order: Order) -> Order:
    """The order with past and future exchanged."""
    return order[::-1, ::-1].T


def ordering_fraction(order: Order) -> float:
    """The share of pairs that are related; 0 if there is no pair."""
    number = len(order)
    return float(numpy.count_nonzero(order)) / (number * (number - 1) / 2) if number > 1 else 0.0


def largest_interval(order: Order) -> tuple[int, int] | None:
    """The first and the last element of the interval with the most elements; None: nothing is related."""
    if not order.any():
        return None
    sizes = numpy.where(order, steps(order), -1)
    first, last = numpy.unravel_index(int(sizes.argmax()), sizes.shape)
    return int(first), int(last)


def interval(order: Order, first: int, last: int) -> Order:
    """The order of an interval's elements, including its two ends."""
    inside = order[first] & order[:, last]
    inside[[first, last]] = True
    return order[numpy.ix_(inside, inside)]


def by_time(points: numpy.typing.NDArray[numpy.float64]) -> Order:
    """The order of points (number, dimension) of Minkowski space, whose first coordinate is time.

    Elements are numbered by rising time. Conformally flat spacetimes have the same light cones, and so the
    same order.
    """
    points = points[numpy.argsort(points[:, 0], kind="stable")]
    apart = points[None] - points[:, None]
    apart *= apart
    order: Order = numpy.triu(apart[..., 0] >= apart[..., 1:].sum(axis=-1), k=1)
    return order
