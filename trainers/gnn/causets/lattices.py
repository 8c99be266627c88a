"""Regular points of Minkowski space: lattices of several kinds, and a quasicrystal.

None is manifold-like: a lattice has a frame of its own, and in one that moves against it some regions hold
far more points and others far fewer than their volume says (Bombelli, Henson and Sorkin, Mod. Phys. Lett. A
24, 2579, 2009). So there is no dimension either, though each has one of its own.
"""

from __future__ import annotations

import numpy

from castoff.trainers.gnn.causets.order import Order, by_time
from castoff.trainers.gnn.causets.sprinkling import Generator, Points

PLANAR = ("square", "rectangular", "rhombic", "hexagonal", "triangular", "oblique")
FASTEST = 0.8
"""The speed of the frames in which lattices are seen, of light's."""
WINDOW = 1.2
"""The radius of what a quasicrystal keeps, in lattice constants; see `quasicrystal`."""


def lattice(number: int, kind: str, generator: Generator) -> Order:
    """One of PLANAR, turned and seen from a moving frame: the points nearest to a diamond's middle."""
    basis, motif = planar(kind, generator)
    return by_time(_nearest(number, _turned_and_boosted(basis, generator), motif, generator))


def cubic(number: int, dimension: int, generator: Generator) -> Order:
    """A cubic lattice of any dimension, turned and seen from a moving frame."""
    basis = _turned_and_boosted(numpy.eye(dimension), generator)
    return by_time(_nearest(number, basis, numpy.zeros((1, dimension)), generator))


def planar(kind: str, generator: Generator) -> tuple[Points, Points]:
    """The basis (2 vectors, 2) of a planar lattice, and what it repeats: points in terms of the basis.

    A hexagonal one is a triangular one without the middles of its hexagons.
    """
    stretch, lean = generator.uniform(1.2, 2.5), generator.uniform(0.15, 0.4)
    origin = numpy.zeros((1, 2))
    triangular = numpy.array([[1.0, 0.0], [0.5, 0.75**0.5]])
    if kind == "hexagonal":
        return triangular, numpy.array([[0.0, 0.0], [1 / 3, 1 / 3]])
    bases = {
        "square": [[1.0, 0.0], [0.0, 1.0]],
        "rectangular": [[1.0, 0.0], [0.0, stretch]],
        "rhombic": [[0.5, stretch / 2], [0.5, -stretch / 2]],
        "triangular": triangular,
        "oblique": [[1.0, 0.0], [lean, stretch]],
    }
    return numpy.array(bases[kind]), origin


def quasicrystal(number: int, generator: Generator) -> Order:
    """Points of a plane with an order that never repeats: cut from a lattice of four dimensions.

    Of the integers' lattice those points are kept that lie near a plane in which it has eight directions
    alike, and are projected onto it (de Bruijn, 1981; Ammann and Beenker's tiling has the same points, with
    an octagon for the disc here). Not manifold-like, as a lattice is not.
    """
    half = 0.5**0.5
    physical = numpy.array([[1.0, 0.0], [half, half], [0.0, 1.0], [-half, half]])
    hidden = numpy.array([[1.0, 0.0], [-half, half], [0.0, -1.0], [half, half]])
    reach = int(number**0.5) + 4  # a diamond's corner in the fastest frame lies within
    steps = numpy.arange(-reach, reach + 1)
    # Of each first two coordinates few second ones are near the plane: solve for them.
    pairs = numpy.stack(numpy.meshgrid(steps, steps, indexing="ij"), axis=-1).reshape(-1, 2)
    shift = generator.random(2) - 0.5
    wanted = -(pairs @ hidden[:2] + shift) @ numpy.linalg.inv(hidden[2:])
    near = numpy.array([[a, b] for a in range(-2, 3) for b in range(-2, 3)])
    others = numpy.rint(wanted)[:, None] + near
    whole = numpy.concatenate([numpy.broadcast_to(pairs[:, None], others.shape), others], axis=-1)
    whole = whole.reshape(-1, 4)
    away = whole @ hidden + shift
    kept = whole[(away * away).sum(axis=1) <= WINDOW * WINDOW]
    basis = _turned_and_boosted(numpy.eye(2), generator)
    points = (kept @ physical + generator.random(2)) @ basis
    return by_time(_middle(number, points))


def _nearest(number: int, basis: Points, motif: Points, generator: Generator) -> Points:
    dimension = len(basis)
    shift = generator.random(dimension)
    reach = 2
    while True:
        steps = [numpy.arange(-reach, reach + 1)] * dimension
        whole = numpy.stack(numpy.meshgrid(*steps, indexing="ij"), axis=-1).reshape(-1, 1, dimension)
        points = (whole + motif + shift).reshape(-1, dimension) @ basis
        found = _middle(number, points)
        if len(found) == number and _within(found, basis, reach - 2):
            return found
        reach += 2


def _within(points: Points, basis: Points, reach: float) -> bool:
    """Whether the diamond up to the outermost point lies among multiples of the basis up to `reach`."""
    farthest = float(_size(points).max())
    inverse = numpy.linalg.inv(basis)
    # The coordinate k of a vector in the diamond is at most the diamond's size times the row's larger part.
    time, space = numpy.abs(inverse[0]), numpy.sqrt((inverse[1:] ** 2).sum(axis=0))
    return bool((farthest * numpy.maximum(time, space) <= reach).all())


def _middle(number: int, points: Points) -> Points:
    """The points of the smallest diamond that holds so many."""
    return points[numpy.argsort(_size(points), kind="stable")[:number]]


def _size(points: Points) -> Points:
    """Half the height of the diamond on whose edge each point lies."""
    size: Points = numpy.abs(points[:, 0]) + numpy.sqrt((points[:, 1:] ** 2).sum(axis=1))
    return size


def _turned_and_boosted(basis: Points, generator: Generator) -> Points:
    """The basis after a rotation of all directions, time's too, and in a frame that moves in a direction.

    So no two points lie on a light ray by more than chance.
    """
    dimension = len(basis)
    rotation = _rotation(dimension, generator)
    speed = generator.uniform(-FASTEST, FASTEST)
    factor = 1 / (1 - speed * speed) ** 0.5
    boost = numpy.eye(dimension)
    boost[:2, :2] = [[factor, factor * speed], [factor * speed, factor]]
    turned: Points = basis @ rotation @ boost
    return turned


def _rotation(dimension: int, generator: Generator) -> Points:
    """Directions at right angles, by Gram and Schmidt: the same bits everywhere, as no library's are."""
    found: list[Points] = []
    while len(found) < dimension:
        direction = generator.random(dimension) - 0.5
        for other in found:
            direction = direction - (direction * other).sum() * other
        length = float((direction * direction).sum()) ** 0.5
        if length > 0.05:
            found.append(direction / length)
    return numpy.array(found)
