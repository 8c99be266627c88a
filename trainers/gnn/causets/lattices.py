"""Regular points of Minkowski space: lattices of several kinds, and a quasicrystal.

None is manifold-like: a lattice has a frame of its own, and in a frame that moves against it, some regions
hold far more points and others far fewer than their volume implies (Bombelli, Henson and Sorkin, Mod. Phys.
Lett. A 24, 2579, 2009). So its causal set has no dimension, although the lattice has one.
"""

from __future__ import annotations

import numpy

from castoff.trainers.gnn.causets.order import Order, by_time
from castoff.trainers.gnn.causets.sprinkling import Generator, Points

PLANAR = ("square", "rectangular", "rhombic", "hexagonal", "triangular", "oblique")
FASTEST = 0.8
"""The highest speed of the frames in which lattices are seen, as a share of light's."""
WINDOW = 1.2
"""The radius within which a quasicrystal keeps lattice points, in lattice constants; see `quasicrystal`."""


def lattice(number: int, kind: str, generator: Generator) -> Order:
    """The order of a PLANAR lattice, rotated and seen from a moving frame: the points nearest to the
    origin.
    """
    basis, motif = planar(kind, generator)
    return by_time(_nearest(number, _turned_and_boosted(basis, generator), motif, generator))


def cubic(number: int, dimension: int, generator: Generator) -> Order:
    """The order of a cubic lattice of any dimension, rotated and seen from a moving frame."""
    basis = _turned_and_boosted(numpy.eye(dimension), generator)
    return by_time(_nearest(number, basis, numpy.zeros((1, dimension)), generator))


def planar(kind: str, generator: Generator) -> tuple[Points, Points]:
    """The basis (2 vectors, 2) of a planar lattice, and the motif that it repeats: points in terms of the
    basis.

    A hexagonal lattice is a triangular one without the middles of its hexagons.
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
    """The order of points in a plane whose pattern never repeats: cut from a lattice of four dimensions.

    Points of the integer lattice are kept if they lie near a plane in which the lattice has eight equivalent
    directions, and are projected onto it (de Bruijn, 1981; Ammann and Beenker's tiling has the same points,
    with an octagon in place of the disc). It is not manifold-like, as a lattice is not.
    """
    half = 0.5**0.5
    physical = numpy.array([[1.0, 0.0], [half, half], [0.0, 1.0], [-half, half]])
    hidden = numpy.array([[1.0, 0.0], [-half, half], [0.0, -1.0], [half, half]])
    reach = int(number**0.5) + 4  # contains a diamond's corners in the fastest frame
    steps = numpy.arange(-reach, reach + 1)
    # For each pair of first coordinates, few pairs of last coordinates are near the plane: solve for them.
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
        nearest = _middle(number, points)
        if len(nearest) == number and _within(nearest, basis, reach - 2):
            return nearest
        reach += 2


def _within(points: Points, basis: Points, reach: float) -> bool:
    """Whether the diamond up to the outermost point lies within `reach` multiples of the basis."""
    farthest = float(_size(points).max())
    inverse = numpy.linalg.inv(basis)
    # Coordinate k of a vector in the diamond is at most the diamond's size times the larger of time[k] and
    # space[k].
    time, space = numpy.abs(inverse[0]), numpy.sqrt((inverse[1:] ** 2).sum(axis=0))
    return bool((farthest * numpy.maximum(time, space) <= reach).all())


def _middle(number: int, points: Points) -> Points:
    """The `number` points that fill the smallest diamond."""
    return points[numpy.argsort(_size(points), kind="stable")[:number]]


def _size(points: Points) -> Points:
    """Half the height of the diamond on whose edge each point lies."""
    size: Points = numpy.abs(points[:, 0]) + numpy.sqrt((points[:, 1:] ** 2).sum(axis=1))
    return size


def _turned_and_boosted(basis: Points, generator: Generator) -> Points:
    """Rotate a basis in spacetime, and transform it to a frame that moves in one direction.

    So points lie on a common light ray only by chance.
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
    """A random rotation by Gram and Schmidt's method: the same bits on every machine, unlike a library's."""
    directions: list[Points] = []
    while len(directions) < dimension:
        direction = generator.random(dimension) - 0.5
        for other in directions:
            direction = direction - (direction * other).sum() * other
        length = float((direction * direction).sum()) ** 0.5
        if length > 0.05:
            directions.append(direction / length)
    return numpy.array(directions)
