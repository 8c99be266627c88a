"""Two causal sets made into one, in which each keeps its own order."""

from __future__ import annotations

import numpy

from castoff.trainers.gnn.causets.order import Order, closed
from castoff.trainers.gnn.causets.sprinkling import Generator


def merged(early: Order, late: Order, relations: int, generator: Generator) -> Order:
    """Merge two orders, with `relations` random relations from the first to the second, and all that follow
    from them.

    Since relations lead one way only, none are added among the elements of either part.
    """
    split, number = len(early), len(early) + len(late)
    order = numpy.zeros((number, number), dtype=bool)
    order[:split, :split] = early
    order[split:, split:] = late
    drawn = generator.integers(0, [split, len(late)], size=(relations, 2))
    order[drawn[:, 0], split + drawn[:, 1]] = True
    return closed(order)
