"""Causal sets: finite partial orders, some of which look like pieces of spacetime.

A causal set is a boolean matrix `order` with `order[i, j]` where element i precedes j; elements are
numbered so that this is strictly upper triangular. Sprinkling is Bombelli, Lee, Meyer and Sorkin
(Phys. Rev. Lett. 59, 521, 1987), layered orders are Kleitman and Rothschild's (Trans. AMS 205,
205, 1975), which are almost all orders of a size; random ones are transitive percolation (Rideout and
Sorkin, Phys. Rev. D 61, 024002, 1999).
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy
import numpy.typing

Order: TypeAlias = "numpy.typing.NDArray[numpy.bool_]"


def sprinkle(mean: float, dimension: int, generator: numpy.random.Generator) -> Order:
    """The order of a Poisson number of points, uniform in a causal diamond of Minkowski space.

    `mean`: expected number of elements; at least 2 come. `dimension`: of spacetime, at least 2.

    Raises:
        ValueError: the dimension is below 2, or the mean not positive.
    """
    if dimension < 2 or not 0 < mean < math.inf:
        raise ValueError(
            f"sprinkle({mean}, {dimension}): takes a positive mean and a dimension of at least 2"
        )
    number = max(2, int(generator.poisson(mean)))
    points = _in_diamond(number, dimension, generator)
    interval = numpy.zeros((number, number))
    for axis, at in enumerate(points.T):
        squared = (at[None] - at[:, None]) ** 2
        interval += squared if axis == 0 else -squared
    order: Order = numpy.triu(interval >= 0, k=1)
    return order


def _in_diamond(
    number: int, dimension: int, generator: numpy.random.Generator
) -> numpy.typing.NDArray[numpy.float64]:
    """Points with |x| <= 1 - |t|, by rising t: a slice at t is a ball of dimension - 1."""
    height = 1 - generator.random(number) ** (1 / dimension)  # its density is (1 - |t|) ** (dimension - 1)
    time = numpy.sort(height * generator.choice([-1, 1], number))
    direction = generator.normal(size=(number, dimension - 1))
    direction /= numpy.linalg.norm(direction, axis=1, keepdims=True)
    radius = (1 - numpy.abs(time)) * generator.random(number) ** (1 / (dimension - 1))
    return numpy.column_stack([time, direction * radius[:, None]])


def layered(number: int, generator: numpy.random.Generator, density: float = 0.5) -> Order:
    """A Kleitman-Rothschild order: layers of a quarter, a half and a quarter of the elements.

    Elements of neighbouring layers are related with probability `density`; what that implies for
    the lowest and the highest layer is nearly always all of it, as in their theorem.

    Raises:
        ValueError: the density is no probability.
    """
    _check_probability("density", density)
    middle = number // 2
    bottom = (number - middle) // 2
    level = numpy.repeat([0, 1, 2], [bottom, middle, number - middle - bottom])
    related = generator.random((number, number)) < density
    return closed((level[None] - level[:, None] == 1) & related)


def percolation(number: int, probability: float, generator: numpy.random.Generator) -> Order:
    """Transitive percolation: each earlier element precedes each later one with a probability.

    Raises:
        ValueError: the probability is none.
    """
    _check_probability("probability", probability)
    return closed(numpy.triu(generator.random((number, number)) < probability, k=1))


def _check_probability(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name}: is {value}, but takes a probability, 0 to 1")


def closed(relation: Order) -> Order:
    """The transitive closure of a strictly upper triangular relation."""
    order = relation.copy()
    for element in reversed(range(len(order))):  # what follows it is closed already
        after = numpy.flatnonzero(order[element])
        order[element] |= order[after].any(axis=0)
    return order


def links(order: Order) -> Order:
    """The relations with nothing in between: the edges of the Hasse diagram."""
    steps = order.astype(numpy.float32)
    bare: Order = order & (steps @ steps == 0)
    return bare


def chains(order: Order) -> numpy.typing.NDArray[numpy.int64]:
    """The number of elements on the longest chain that ends in each, itself not counted."""
    longest = numpy.zeros(len(order), dtype=numpy.int64)
    for element in range(len(order)):
        before = order[:element, element]
        if before.any():
            longest[element] = longest[:element][before].max() + 1
    return longest


def ordering_fraction(order: Order) -> float:
    """The share of pairs that are related; 0 where there is no pair."""
    number = len(order)
    return float(order.sum()) / (number * (number - 1) / 2) if number > 1 else 0.0


def expected_fraction(dimension: float) -> float:
    """The ordering fraction of a diamond of Minkowski space (Meyer, thesis, MIT, 1988).

    1/2, 8/35 and 1/10 for two, three and four dimensions.
    """
    log = math.lgamma(dimension + 1) + math.lgamma(dimension / 2) - math.lgamma(3 * dimension / 2)
    return math.exp(log) / 2


def myrheim_meyer(order: Order, *, lowest: float = 1.0, highest: float = 10.0) -> float:
    """The dimension whose expected ordering fraction is that of the order, within bounds."""
    wanted = ordering_fraction(order)
    low, high = lowest, highest
    for _ in range(60):  # expected_fraction falls with the dimension
        middle = (low + high) / 2
        low, high = (middle, high) if expected_fraction(middle) > wanted else (low, middle)
    return (low + high) / 2
