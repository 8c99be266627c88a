"""The kinds of generated causal sets: how each is drawn, and its true properties."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from castoff.trainers.gnn.causets.lattices import PLANAR, cubic, lattice, quasicrystal
from castoff.trainers.gnn.causets.merging import merged
from castoff.trainers.gnn.causets.order import Order, ordering_fraction
from castoff.trainers.gnn.causets.random_orders import destroyed, layered, matched_percolation
from castoff.trainers.gnn.causets.sprinkling import BENT, REGIONS, Generator, curved, in_region, sprinkled
from castoff.trainers.gnn.causets.topology import cut

DIMENSIONS = (2, 3, 4, 5)
"""Dimensions of sprinklings in flat spacetime."""
CURVED_DIMENSIONS = (2, 3, 4)


class Causet(NamedTuple):
    """A causal set, and its true properties."""

    order: Order
    manifold_like: bool
    dimension: float
    """0 if it has none."""


def draw_sprinkled(number: int, generator: Generator) -> Causet:
    """Draw a causal diamond of two to five dimensions."""
    dimension = int(generator.choice(DIMENSIONS))
    return Causet(sprinkled(number, dimension, generator), True, dimension)


def draw_region(number: int, generator: Generator) -> Causet:
    """Draw another region of two to five dimensions."""
    dimension = int(generator.choice(DIMENSIONS))
    region = list(REGIONS)[generator.integers(len(REGIONS))]
    return Causet(in_region(number, dimension, region, generator), True, dimension)


def draw_curved(number: int, generator: Generator) -> Causet:
    """Draw a diamond of de Sitter or anti-de Sitter space of two to four dimensions."""
    dimension = int(generator.choice(CURVED_DIMENSIONS))
    bend = float(generator.uniform(0.5, BENT) * generator.choice([-1.0, 1.0]))
    return Causet(curved(number, dimension, bend, generator), True, dimension)


def draw_cut(number: int, generator: Generator) -> Causet:
    """Draw a diamond of two dimensions with one to three slits."""
    return Causet(cut(number, int(generator.integers(1, 4)), generator), True, 2.0)


def draw_merged(number: int, generator: Generator) -> Causet:
    """Draw two sprinklings of different dimensions, or one and something else, with relations between them.

    No spacetime has both parts, so the whole is not manifold-like. If both parts have a dimension, the
    dimension of the whole is the mean over its elements: the average dimension of an element's neighbourhood.
    """
    first = round(number * float(generator.uniform(0.3, 0.7)))
    sizes = (first, number - first)
    if generator.random() < _BOTH:
        dimensions = generator.permutation(DIMENSIONS)[:2]
        parts = [
            Causet(sprinkled(size, int(dimension), generator), True, float(dimension))
            for size, dimension in zip(sizes, dimensions, strict=True)
        ]
        mean = sum(len(part.order) * part.dimension for part in parts) / number
    else:
        other = draw_layered if generator.random() < 0.5 else draw_percolation
        parts = [draw_sprinkled(sizes[0], generator), other(sizes[1], generator)]
        mean = 0.0
        if generator.random() < 0.5:
            parts.reverse()
    relations = round(number * float(generator.uniform(0.05, 0.5)))
    return Causet(merged(parts[0].order, parts[1].order, relations, generator), False, mean)


_BOTH = 0.75
"""The share of merged sets whose parts are both sprinklings."""


def draw_layered(number: int, generator: Generator) -> Causet:
    """Draw three layers, as in Kleitman-Rothschild orders, or two to six of about the same size."""
    density = float(generator.uniform(0.1, 0.7))
    layers = int(generator.integers(2, 7))
    if generator.random() < 0.5:
        return Causet(layered(number, generator, density), False, 0.0)
    shares = tuple(generator.uniform(0.5, 1.5, layers).tolist())
    return Causet(layered(number, generator, density, shares), False, 0.0)


def draw_percolation(number: int, generator: Generator) -> Causet:
    """Draw a percolation with the ordering fraction of a manifold-like set of the same size."""
    draw = draw_sprinkled if generator.random() < 0.5 else draw_region
    wanted = ordering_fraction(draw(number, generator).order)
    return Causet(matched_percolation(number, wanted, generator), False, 0.0)


def draw_destroyed(number: int, generator: Generator) -> Causet:
    """Draw a diamond or another region, and replace 5 to 25 % of its links by false relations."""
    draw = draw_sprinkled if generator.random() < 0.5 else draw_region
    share = float(generator.uniform(0.05, 0.25))
    return Causet(destroyed(draw(number, generator).order, share, generator), False, 0.0)


def draw_lattice(number: int, generator: Generator) -> Causet:
    """Draw one of the planar lattices, or a cubic one of three dimensions."""
    kinds = (*PLANAR, "cubic")
    kind = kinds[generator.integers(len(kinds))]
    order = cubic(number, 3, generator) if kind == "cubic" else lattice(number, kind, generator)
    return Causet(order, False, 0.0)


def draw_quasicrystal(number: int, generator: Generator) -> Causet:
    """Draw a quasicrystal of the plane."""
    return Causet(quasicrystal(number, generator), False, 0.0)


KINDS: dict[str, Callable[[int, Generator], Causet]] = {
    "sprinkled": draw_sprinkled,
    "region": draw_region,
    "curved": draw_curved,
    "cut": draw_cut,
    "merged": draw_merged,
    "layered": draw_layered,
    "percolation": draw_percolation,
    "destroyed": draw_destroyed,
    "lattice": draw_lattice,
    "quasicrystal": draw_quasicrystal,
}
"""The functions that draw each kind, by its name; a graph's `kind` is the index of its kind."""
