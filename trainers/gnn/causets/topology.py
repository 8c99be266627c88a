"""Sprinklings in a spacetime with impassable slits: a topology that is not simple."""

from __future__ import annotations

import numpy

from castoff.trainers.gnn.causets.order import Order, closed
from castoff.trainers.gnn.causets.sprinkling import Generator, Points, in_diamond


def cut(number: int, slits: int, generator: Generator) -> Order:
    """A diamond of two dimensions, from which some straight lines are taken.

    An element precedes another where a causal curve leads to it round the slits. Each point but the slits'
    ends has a neighbourhood as in flat spacetime: manifold-like, of dimension 2.
    """
    points = in_diamond(number, 2, generator)
    points = points[numpy.argsort(points[:, 0], kind="stable")]
    ends = in_diamond(2 * slits, 2, generator).reshape(slits, 2, 2)
    return between(points, ends)


def between(points: Points, slits: Points) -> Order:
    """Which of the points (number, 2), by rising time, are joined by a causal curve that crosses no slit.

    `slits`: (slits, 2 ends, 2). The longest curve between two points is straight but for slits' ends, which
    it may bend round; so it is enough to look at straight lines between points and ends.
    """
    places = numpy.concatenate([points, slits.reshape(-1, 2)])
    rising = numpy.argsort(places[:, 0], kind="stable")
    places = places[rising]
    apart = places[None] - places[:, None]
    direct = numpy.triu(numpy.abs(apart[..., 0]) >= numpy.abs(apart[..., 1]), k=1)
    for slit in slits:
        direct &= ~_crossed(places, slit)
    order = closed(direct)
    ours = numpy.flatnonzero(rising < len(points))
    return order[numpy.ix_(ours, ours)]


def _crossed(places: Points, slit: Points) -> Order:
    """Whether the straight line from each place to each other crosses a slit; a touch does not count."""
    first, second = slit
    along = second - first
    # On which side of the slit each place is; its own ends are on none.
    side = along[0] * (places[:, 1] - first[1]) - along[1] * (places[:, 0] - first[0])
    at_end = (places[:, None] == slit).all(axis=-1).any(axis=1)
    side[at_end] = 0
    # And on which side of each line between places the slit's ends are.
    line = places[None] - places[:, None]
    sides = [
        line[..., 0] * (end[1] - places[:, None, 1]) - line[..., 1] * (end[0] - places[:, None, 0])
        for end in slit
    ]
    parted: Order = (side[:, None] * side[None] < 0) & (sides[0] * sides[1] < 0)
    return parted
