"""Regular points: each kind has its own basis, none of the points of its region is missing."""

from __future__ import annotations

import math
from itertools import product

import numpy
import pytest

from castoff.trainers.gnn.causets import lattices
from castoff.trainers.gnn.causets.lattices import PLANAR, cubic, lattice, planar, quasicrystal
from castoff.trainers.gnn.causets.order import by_time
from castoff.trainers.gnn.causets.sprinkling import Points


def random(*seed: int) -> numpy.random.Generator:
    return numpy.random.default_rng(seed)


@pytest.fixture
def at_rest(monkeypatch: pytest.MonkeyPatch) -> list[Points]:
    """Neither turned nor boosted; what is made an order of comes into the list."""
    seen: list[Points] = []

    def keep(points: Points) -> object:
        seen.append(points)
        return by_time(points)

    monkeypatch.setattr(lattices, "by_time", keep)
    monkeypatch.setattr(lattices, "_turned_and_boosted", lambda basis, generator: basis)
    return seen


ANGLES = {"square": [90.0], "rectangular": [90.0], "triangular": [60.0], "hexagonal": [60.0]}


@pytest.mark.parametrize("kind", PLANAR)
@pytest.mark.parametrize("seed", range(3))
def test_bases_are_those_of_their_kinds(kind: str, seed: int) -> None:
    (one, other), motif = planar(kind, random(seed))
    lengths = [float(numpy.hypot(*each)) for each in (one, other)]
    angle = math.degrees(math.acos(float(one @ other) / (lengths[0] * lengths[1])))
    assert (lengths[0] == pytest.approx(lengths[1])) == (kind not in ("rectangular", "oblique"))
    if kind in ANGLES:
        assert angle == pytest.approx(ANGLES[kind][0])
    else:
        assert not any(angle == pytest.approx(special) for special in (60, 90, 120))
    assert len(motif) == (2 if kind == "hexagonal" else 1)


def test_each_point_of_a_honeycomb_has_three_neighbours(at_rest: list[Points]) -> None:
    lattice(150, "hexagonal", random(1))
    (points,) = at_rest
    apart = numpy.hypot(*(points[:, None] - points[None]).T)
    near = (abs(apart - 3**-0.5) < 1e-9).sum(axis=0)
    assert apart[apart > 1e-9].min() == pytest.approx(3**-0.5)
    inside = numpy.abs(points).sum(axis=1) < 0.7 * numpy.abs(points).sum(axis=1).max()
    assert set(near[inside]) == {3}


@pytest.mark.parametrize("number", [8, 60])
@pytest.mark.parametrize("dimension", [2, 3])
def test_no_point_of_the_diamond_is_missing(dimension: int, number: int, at_rest: list[Points]) -> None:
    cubic(number, dimension, random(number))
    (points,) = at_rest
    size = numpy.abs(points[:, 0]) + numpy.linalg.norm(points[:, 1:], axis=1)
    shift = points[0] - numpy.floor(points[0])
    whole = points - shift
    assert numpy.allclose(whole, numpy.rint(whole))
    every = numpy.array(list(product(range(-12, 12), repeat=dimension))) + shift
    there = numpy.abs(every[:, 0]) + numpy.linalg.norm(every[:, 1:], axis=1)
    # At rest several points may lie equally far out.
    assert (there < size.max() - 1e-9).sum() < len(points) <= (there <= size.max() + 1e-9).sum()
    assert len(points) == number


@pytest.mark.parametrize("seed", range(4))
def test_none_is_missing_in_a_frame_that_moves(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made with a reach that is far too large, it is the same."""
    one = lattice(60, "oblique", random(seed))
    enough = lattices._within
    monkeypatch.setattr(
        lattices, "_within", lambda points, basis, reach: reach > 20 and enough(points, basis, reach)
    )
    assert (lattice(60, "oblique", random(seed)) == one).all()


def test_a_quasicrystal_has_eight_directions_and_its_density(at_rest: list[Points]) -> None:
    """Points of the window's area over that of the lattice's cell, 4; steps in eight directions."""
    quasicrystal(400, random(3))
    (points,) = at_rest
    size = numpy.abs(points).sum(axis=1).max()
    assert 400 / (2 * size**2) == pytest.approx(math.pi * lattices.WINDOW**2 / 4, rel=0.08)
    steps = (points[:, None] - points[None]).reshape(-1, 2)
    lengths = numpy.hypot(*steps.T)
    assert lengths[lengths > 1e-9].min() > 0.3  # none come arbitrarily near
    angles = numpy.degrees(numpy.arctan2(*steps[abs(lengths - 1) < 1e-9].T)) % 360
    found = {round(angle) % 360 for angle in angles}
    assert found == set(range(0, 360, 45))


def test_a_quasicrystal_is_not_a_lattice(at_rest: list[Points]) -> None:
    """In a lattice a step that leads from one point to another leads from nearly every point to one."""
    quasicrystal(200, random(4))
    (points,) = at_rest
    inside = points[numpy.abs(points).sum(axis=1) < 0.7 * numpy.abs(points).sum(axis=1).max()]
    shares = []
    for step in ([1.0, 0.0], [0.5**0.5, 0.5**0.5]):
        apart = numpy.hypot(*(points[:, None] - (inside + step)[None]).T)
        shares.append((apart < 1e-9).any(axis=1).mean())
    assert all(0.2 < share < 0.9 for share in shares)


def test_a_moving_frame_keeps_volumes_and_intervals() -> None:
    """Without its rotation, what is done to the basis is a Lorentz transformation."""
    metric = numpy.diag([1.0, -1.0, -1.0])
    for seed in range(5):
        both = lattices._turned_and_boosted(numpy.eye(3), random(seed))
        turned = lattices._rotation(3, random(seed))
        assert numpy.allclose(turned @ turned.T, numpy.eye(3))
        boost = turned.T @ both
        assert numpy.allclose(boost @ metric @ boost.T, metric)
        assert not numpy.allclose(boost, numpy.eye(3))
