"""Sprinklings: points at random in a region of spacetime, uniform in its volume, and their causal order.

See Bombelli, Lee, Meyer and Sorkin (Phys. Rev. Lett. 59, 521, 1987). The number of points is given, so it is
a Poisson sprinkling on condition that it has this number. All points come from sums, products and square
roots, which are the same bits on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy
import numpy.typing

from castoff.trainers.gnn.causets.order import Order, by_time

Points: TypeAlias = "numpy.typing.NDArray[numpy.float64]"
Generator: TypeAlias = numpy.random.Generator

BENT = 1.5
"""The largest proper time between the ends of a curved diamond, in radii of curvature: in larger diamonds,
nearly all points lie near one end or edge.
"""


def sprinkled(number: int, dimension: int, generator: Generator) -> Order:
    """The order of a sprinkling in a causal diamond of Minkowski space: the region between two points.

    It is manifold-like by definition, and has the dimension of its spacetime, at least 2.
    """
    return by_time(in_diamond(number, dimension, generator))


def in_diamond(number: int, dimension: int, generator: Generator) -> Points:
    """Points (number, dimension) with |x| <= 1 - |t|; at a time t, a ball of dimension - 1."""
    radius = generator.random((number, dimension)).max(axis=1)  # its density is radius ** (dimension - 1)
    time = (1 - radius) * generator.choice([-1.0, 1.0], number)
    return numpy.column_stack([time, in_ball(number, dimension - 1, generator) * radius[:, None]])


def in_ball(number: int, dimension: int, generator: Generator) -> Points:
    """Points (number, dimension) with |x| <= 1."""

    def drawn(count: int) -> Points:
        points = 2 * generator.random((count, dimension)) - 1
        kept: Points = points[(points * points).sum(axis=1) <= 1]
        return kept

    return _enough(number, drawn)


def _enough(number: int, drawn: Callable[[int], Points]) -> Points:
    """The first `number` points of repeated draws."""
    parts = [drawn(2 * number)]
    while sum(map(len, parts)) < number:
        parts.append(drawn(4 * number))
    return numpy.concatenate(parts)[:number]


def in_box(number: int, dimension: int, generator: Generator) -> Points:
    """Points in a cube of space that lasts half to twice its width; no two points have all others between
    them.
    """
    points = generator.random((number, dimension))
    points[:, 0] *= generator.uniform(0.5, 2.0)
    return points


def in_round(number: int, dimension: int, generator: Generator) -> Points:
    """Points in a ball of spacetime, as if time were one more direction of space."""
    return in_ball(number, dimension, generator)


def in_cone(number: int, dimension: int, generator: Generator) -> Points:
    """Points in the future of a point up to a moment: |x| <= t <= 1."""
    time = generator.random((number, dimension)).max(axis=1)
    return numpy.column_stack([time, in_ball(number, dimension - 1, generator) * time[:, None]])


REGIONS: dict[str, Callable[[int, int, Generator], Points]] = {
    "box": in_box,
    "round": in_round,
    "cone": in_cone,
}


def in_region(number: int, dimension: int, region: str, generator: Generator) -> Order:
    """The order of a sprinkling in another region of Minkowski space, one of REGIONS.

    It is as manifold-like as a diamond and has the same dimension, but formulas for diamonds do not hold: the
    ordering fraction depends on the region's shape.
    """
    return by_time(REGIONS[region](number, dimension, generator))


def curved(number: int, dimension: int, bend: float, generator: Generator) -> Order:
    """The order of a sprinkling in a causal diamond of de Sitter space, or anti-de Sitter if `bend` is
    negative.

    |bend| is the proper time between the diamond's ends in radii of curvature, at most BENT. In conformally
    flat coordinates, the diamond is one of Minkowski space with another volume: the factor is 1 / |conformal
    time|**d in de Sitter space's flat slices, and 1 / z**d in anti-de Sitter space's Poincaré coordinates
    (Hawking and Ellis, The large scale structure of space-time, 1973, 5.2). The order is manifold-like, and
    has its spacetime's dimension.

    Raises:
        ValueError: the bend is 0 or too large.
    """
    if not 0 < abs(bend) <= BENT:
        raise ValueError(f"bend: is {bend}, but takes a number from -{BENT} to {BENT} that is not 0")
    # The diamond's centre is where the conformal coordinate is 1, and its ends are at times -radius and
    # radius.
    radius = math.tanh(bend / 2) if bend > 0 else math.sin(-bend / 2)

    def drawn(count: int) -> Points:
        points = in_diamond(8 * count, dimension, generator) * radius
        coordinate = 1 - points[:, 0] if bend > 0 else 1 + points[:, 1]
        ratio = (1 - radius) / coordinate
        density = ratio.copy()
        for _ in range(dimension - 1):
            density *= ratio
        return points[generator.random(len(points)) < density]

    return by_time(_enough(number, drawn))
