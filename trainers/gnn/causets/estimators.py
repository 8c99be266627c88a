"""The dimension of a causal set, estimated by counting.

Both estimators assume an interval of flat spacetime: the region between two points. For other regions, curved
spacetimes and orders without a spacetime, they still give a number.
"""

from __future__ import annotations

import math

import numpy

from castoff.trainers.gnn.causets.order import Order, interval, largest_interval, ordering_fraction

LOWEST, HIGHEST = 1.0, 10.0
"""The smallest and the largest dimension that an estimate can be."""


def expected_fraction(dimension: float) -> float:
    """The ordering fraction of a diamond of Minkowski space (Meyer, thesis, MIT, 1988).

    1/2, 8/35 and 1/10 for two, three and four dimensions.
    """
    log = math.lgamma(dimension + 1) + math.lgamma(dimension / 2) - math.lgamma(3 * dimension / 2)
    return math.exp(log) / 2


def dimension_of(fraction: float) -> float:
    """The dimension whose expected ordering fraction is `fraction`, from LOWEST to HIGHEST."""
    low, high = LOWEST, HIGHEST
    for _ in range(40):  # expected_fraction falls with the dimension
        middle = (low + high) / 2
        low, high = (middle, high) if expected_fraction(middle) > fraction else (low, middle)
    return (low + high) / 2


def myrheim_meyer(order: Order) -> float:
    """The dimension whose expected ordering fraction is the order's (Myrheim, CERN-TH-2538, 1978)."""
    return dimension_of(ordering_fraction(order))


def myrheim_meyer_inside(order: Order) -> float:
    """The Myrheim-Meyer dimension of the largest interval, the kind of region that the formula is for.

    HIGHEST if it has fewer than two elements between its ends.
    """
    ends = largest_interval(order)
    if ends is None:
        return HIGHEST
    return myrheim_meyer(interval(order, *ends)[1:-1, 1:-1])


def midpoint_scaling(order: Order) -> float:
    """The dimension from how an interval's size grows with its height (Bombelli, thesis, Syracuse University,
    1987).

    The midpoint of the largest interval is the element for which the smaller of its intervals with the two
    ends has the most elements, which are a share of 2**-d. From LOWEST to HIGHEST; HIGHEST if nothing is
    related.
    """
    ends = largest_interval(order)
    if ends is None:
        return HIGHEST
    inside = interval(order, *ends)
    before, after = inside.sum(axis=0) + 1, inside.sum(axis=1) + 1  # each includes its two ends
    half = int(numpy.minimum(before, after)[1:-1].max(initial=0))
    if half == 0:
        return HIGHEST
    return min(max(math.log2(len(inside) / half), LOWEST), HIGHEST)
