"""The dimension of a causal set, estimated by counting.

Both estimators assume an interval of flat spacetime: what lies between two points. Of other regions, of
curved spacetimes and of what comes from none they still give a number.
"""

from __future__ import annotations

import math

import numpy

from castoff.trainers.gnn.causets.order import Order, interval, largest_interval, ordering_fraction

LOWEST, HIGHEST = 1.0, 10.0
"""The dimensions among which a raw estimate is looked for."""


def expected_fraction(dimension: float) -> float:
    """The ordering fraction of a diamond of Minkowski space (Meyer, thesis, MIT, 1988).

    1/2, 8/35 and 1/10 for two, three and four dimensions.
    """
    log = math.lgamma(dimension + 1) + math.lgamma(dimension / 2) - math.lgamma(3 * dimension / 2)
    return math.exp(log) / 2


def dimension_of(fraction: float) -> float:
    """The dimension of which an ordering fraction is expected, from LOWEST to HIGHEST."""
    low, high = LOWEST, HIGHEST
    for _ in range(40):  # expected_fraction falls with the dimension
        middle = (low + high) / 2
        low, high = (middle, high) if expected_fraction(middle) > fraction else (low, middle)
    return (low + high) / 2


def myrheim_meyer(order: Order) -> float:
    """The dimension whose expected ordering fraction is that of the order (Myrheim, CERN-TH-2538, 1978)."""
    return dimension_of(ordering_fraction(order))


def myrheim_meyer_inside(order: Order) -> float:
    """The Myrheim-Meyer dimension of the largest interval, for which the formula was made.

    HIGHEST where that has fewer than two elements.
    """
    ends = largest_interval(order)
    if ends is None:
        return HIGHEST
    return myrheim_meyer(interval(order, *ends)[1:-1, 1:-1])


def midpoint_scaling(order: Order) -> float:
    """How an interval's size grows with its height (Bombelli, thesis, Syracuse University, 1987).

    An element halves the largest interval best where the smaller of the two intervals that it makes with
    the ends has the most elements: each has the share 2**-d of all. From LOWEST to HIGHEST; HIGHEST where
    nothing is related.
    """
    ends = largest_interval(order)
    if ends is None:
        return HIGHEST
    inside = interval(order, *ends)
    before, after = inside.sum(axis=0) + 1, inside.sum(axis=1) + 1  # each with its two ends
    half = int(numpy.minimum(before, after)[1:-1].max(initial=0))
    if half == 0:
        return HIGHEST
    return min(max(math.log2(len(inside) / half), LOWEST), HIGHEST)
