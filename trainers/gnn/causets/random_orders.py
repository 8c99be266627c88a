"""Random orders that come from no spacetime, and sprinklings turned into such. None is manifold-like."""

from __future__ import annotations

import numpy

from castoff.trainers.gnn.causets.order import Order, closed, links, ordering_fraction
from castoff.trainers.gnn.causets.sprinkling import Generator


def layered(
    number: int, generator: Generator, density: float = 0.5, shares: tuple[float, ...] = (0.25, 0.5, 0.25)
) -> Order:
    """Layers that hold shares of the elements, from the earliest.

    Elements of neighbouring layers are related with probability `density`. With a quarter, a half and a
    quarter it is a Kleitman-Rothschild order, and so are almost all orders of a size (Trans. AMS 205, 205,
    1975); of a spacetime's height, which grows with its size, they have nothing.

    Raises:
        ValueError: the density is not a probability.
    """
    _check_probability("density", density)
    ends = numpy.rint(numpy.cumsum(shares) / sum(shares) * number).astype(int)
    level = numpy.searchsorted(ends, numpy.arange(number), side="right")
    related = generator.random((number, number)) < density
    return closed((level[None] - level[:, None] == 1) & related)


def percolation(number: int, probability: float, generator: Generator) -> Order:
    """Transitive percolation: each earlier element precedes each later one with a probability.

    Rideout and Sorkin, Phys. Rev. D 61, 024002, 1999: a law of growth, without a spacetime.

    Raises:
        ValueError: the probability is none.
    """
    _check_probability("probability", probability)
    return closed(numpy.triu(generator.random((number, number)) < probability, k=1))


def matched_percolation(number: int, fraction: float, generator: Generator) -> Order:
    """Transitive percolation with the probability that gives an ordering fraction, as nearly as one can."""
    chances = generator.random((number, number))
    chances[numpy.tril_indices(number)] = 1.0
    low, high = 0.0, 1.0
    best = numpy.zeros((number, number), dtype=bool)
    missed = fraction
    for _ in range(_HALVINGS):  # the fraction rises with the probability, for the same chances
        middle = (low + high) / 2
        order = closed(chances < middle)
        found = ordering_fraction(order)
        if abs(found - fraction) < missed:
            best, missed = order, abs(found - fraction)
        low, high = (middle, high) if found < fraction else (low, middle)
    return best


_HALVINGS = 14
"""To a ten-thousandth of a probability: of a hundred elements' pairs, about one more that is drawn."""


def destroyed(order: Order, share: float, generator: Generator) -> Order:
    """An order with faults: a share of its links are gone, and as many relations are there that were not.

    What then follows is added. A few relations that no spacetime has make others far away, so it is not
    manifold-like, and has no dimension.

    Raises:
        ValueError: the share is none.
    """
    _check_probability("share", share)
    bare = links(order)
    faulty = bare.copy()
    present = numpy.argwhere(bare)
    absent = numpy.argwhere(numpy.triu(~order, k=1))
    flipped = round(share * len(present))
    lost = generator.permutation(len(present))[:flipped]
    gained = generator.permutation(len(absent))[:flipped]
    faulty[tuple(present[lost].T)] = False
    faulty[tuple(absent[gained].T)] = True
    return closed(faulty)


def _check_probability(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name}: is {value}, but takes a probability, 0 to 1")
