"""Random orders without a spacetime, and sprinklings with faults. None is manifold-like."""

from __future__ import annotations

import numpy

from castoff.trainers.gnn.causets.order import Order, closed, links, ordering_fraction
from castoff.trainers.gnn.causets.sprinkling import Generator


def layered(
    number: int, generator: Generator, density: float = 0.5, shares: tuple[float, ...] = (0.25, 0.5, 0.25)
) -> Order:
    """An order of layers, which have these shares of the elements, the earliest first.

    Elements of neighbouring layers are related with probability `density`. With a quarter, a half and a
    quarter it is a Kleitman-Rothschild order, as almost all orders of a size are (Trans. AMS 205, 205, 1975).
    Unlike a spacetime's, its height does not grow with its size.

    Raises:
        ValueError: the density is not a probability.
    """
    _check_probability("density", density)
    ends = numpy.rint(numpy.cumsum(shares) / sum(shares) * number).astype(int)
    level = numpy.searchsorted(ends, numpy.arange(number), side="right")
    related = generator.random((number, number)) < density
    return closed((level[None] - level[:, None] == 1) & related)


def percolation(number: int, probability: float, generator: Generator) -> Order:
    """Transitive percolation: each earlier element precedes each later one with the same probability.

    A law of growth without a spacetime (Rideout and Sorkin, Phys. Rev. D 61, 024002, 1999).

    Raises:
        ValueError: `probability` is not between 0 and 1.
    """
    _check_probability("probability", probability)
    return closed(numpy.triu(generator.random((number, number)) < probability, k=1))


def matched_percolation(number: int, fraction: float, generator: Generator) -> Order:
    """Transitive percolation whose ordering fraction is as near to `fraction` as possible."""
    chances = generator.random((number, number))
    chances[numpy.tril_indices(number)] = 1.0
    low, high = 0.0, 1.0
    best = numpy.zeros((number, number), dtype=bool)
    missed = fraction
    for _ in range(_HALVINGS):  # the fraction rises with the probability, for the same chances
        middle = (low + high) / 2
        order = closed(chances < middle)
        reached = ordering_fraction(order)
        if abs(reached - fraction) < missed:
            best, missed = order, abs(reached - fraction)
        low, high = (middle, high) if reached < fraction else (low, middle)
    return best


_HALVINGS = 14
"""Number of bisections: they determine the probability to 1e-4, or less than one pair of a hundred
elements.
"""


def destroyed(order: Order, share: float, generator: Generator) -> Order:
    """An order with faults: a share of its links is removed, and as many false relations are added.

    Relations that then follow are added. A few relations that the spacetime does not have imply others far
    away, so the order is not manifold-like and has no dimension.

    Raises:
        ValueError: `share` is not between 0 and 1.
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
