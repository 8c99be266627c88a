"""Sprinklings in a spacetime with impassable slits, which have a non-trivial topology."""

from __future__ import annotations

import numpy

from castoff.trainers.gnn.causets.order import Order, closed
from castoff.trainers.gnn.causets.sprinkling import Generator, Points, in_diamond


def cut(number: int, slits: int, generator: Generator) -> Order:
    """The order of a sprinkling in a diamond of two dimensions, from which straight slits are cut out.

    An element precedes another if a causal curve leads to it round the slits. Each point but the slits' ends
    has a neighbourhood as in flat spacetime, so the order is manifold-like, of dimension 2.
    """
    points = in_diamond(number, 2, generator)
    points = points[numpy.argsort(points[:, 0], kind="stable")]
    ends = in_diamond(2 * slits, 2, generator).reshape(slits, 2, 2)
    return between(points, ends)


def between(points: Points, slits: Points) -> Order:
    """Which of the points (number, 2), sorted by time, are joined by a causal curve that crosses no slit.

    `slits`: (slits, 2 ends, 2). The longest curve between two points consists of straight lines and bends
    only at slits' ends; so straight lines between points and ends suffice.
    """
    positions = numpy.concatenate([points, slits.reshape(-1, 2)])
    rising = numpy.argsort(positions[:, 0], kind="stable")
    positions = positions[rising]
    apart = positions[None] - positions[:, None]
    direct = numpy.triu(numpy.abs(apart[..., 0]) >= numpy.abs(apart[..., 1]), k=1)
    for slit in slits:
        direct &= ~_crossed(positions, slit)
    order = closed(direct)
    indices_of_points = numpy.flatnonzero(rising < len(points))
    return order[numpy.ix_(indices_of_points, indices_of_points)]


def _crossed(positions: Points, slit: Points) -> Order:
    """Whether the straight line between each pair of positions crosses a slit; touching it does not count."""
    first, second = slit
    along = second - first
    # The side of the slit on which each position is; 0 for the slit's own ends.
    side = along[0] * (positions[:, 1] - first[1]) - along[1] * (positions[:, 0] - first[0])
    at_end = (positions[:, None] == slit).all(axis=-1).any(axis=1)
    side[at_end] = 0
    # The side of each line between positions on which the slit's ends are.
    line = positions[None] - positions[:, None]
    sides = [
        line[..., 0] * (end[1] - positions[:, None, 1]) - line[..., 1] * (end[0] - positions[:, None, 0])
        for end in slit
    ]
    parted: Order = (side[:, None] * side[None] < 0) & (sides[0] * sides[1] < 0)
    return parted
