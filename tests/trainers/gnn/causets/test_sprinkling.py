"""Sprinklings: points are uniform in the volume of their region, flat or curved."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castoff.trainers.gnn.causets import sprinkling
from castoff.trainers.gnn.causets.order import ordering_fraction
from castoff.trainers.gnn.causets.sprinkling import (
    REGIONS,
    Points,
    curved,
    in_ball,
    in_cone,
    in_diamond,
    in_region,
    in_round,
    sprinkled,
)

DIMENSIONS = (2, 3, 4, 5)


def random(*seed: int) -> numpy.random.Generator:
    return numpy.random.default_rng(seed)


def parts(points: Points) -> tuple[Points, Points]:
    return points[:, 0], numpy.sqrt((points[:, 1:] ** 2).sum(axis=1))


def near(share: float, number: int) -> object:
    return pytest.approx(share, abs=4 * (share * (1 - share) / number) ** 0.5)


@given(st.integers(0, 10**6), st.sampled_from(DIMENSIONS), st.integers(1, 60))
@settings(max_examples=50)
def test_points_lie_in_their_regions(seed: int, dimension: int, number: int) -> None:
    time, radius = parts(in_diamond(number, dimension, random(seed)))
    assert len(time) == number and (numpy.abs(time) + radius <= 1 + 1e-12).all()
    time, radius = parts(in_cone(number, dimension, random(seed)))
    assert len(time) == number and (radius <= time + 1e-12).all() and (time <= 1).all()
    time, radius = parts(in_round(number, dimension, random(seed)))
    assert len(time) == number and (time**2 + radius**2 <= 1 + 1e-12).all()


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_points_are_uniform_in_the_diamond(dimension: int) -> None:
    """Of the volume, 1 - (1/2)^d lies within |t| < 1/2; and half of each slice in half of its balls."""
    number = 20_000
    points = in_diamond(number, dimension, random(3))
    time, radius = parts(points)
    assert (numpy.abs(time) < 0.5).mean() == near(1 - 0.5**dimension, number)
    inner = radius < (1 - numpy.abs(time)) * 0.5 ** (1 / (dimension - 1))
    assert inner.mean() == near(0.5, number)
    for axis in range(dimension):
        assert (points[:, axis] > 0).mean() == near(0.5, number)


@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_points_are_uniform_in_the_cone_and_the_ball(dimension: int) -> None:
    number = 20_000
    time, _ = parts(in_cone(number, dimension, random(4)))
    assert (time < 0.5 ** (1 / dimension)).mean() == near(0.5, number)
    ball = in_ball(number, dimension, random(5))
    assert ((ball**2).sum(axis=1) < 0.5 ** (2 / dimension)).mean() == near(0.5, number)
    assert (ball[:, 0] > 0).mean() == near(0.5, number)


@pytest.mark.parametrize("region", REGIONS)
def test_other_regions_have_other_ordering_fractions(region: str) -> None:
    """So an estimator that takes them for diamonds is wrong about them."""
    other = [ordering_fraction(in_region(100, 3, region, random(1, seed))) for seed in range(60)]
    diamonds = [ordering_fraction(sprinkled(100, 3, random(2, seed))) for seed in range(60)]
    error = math.hypot(numpy.std(other) / 60**0.5, numpy.std(diamonds) / 60**0.5)
    assert abs(numpy.mean(other) - numpy.mean(diamonds)) > 4 * error


def points_of(bend: float, dimension: int, number: int, monkeypatch: pytest.MonkeyPatch) -> Points:
    """Where the elements of a curved diamond lie in the coordinates of the flat one."""
    seen: list[Points] = []
    monkeypatch.setattr(sprinkling, "by_time", seen.append)
    curved(number, dimension, bend, random(7))
    return seen[0]


def share_early(
    radius: float, dimension: int, weigh: Callable[[Points, Points], Points]
) -> tuple[float, float]:
    """The shares of a diamond's weighted volume with t < 0 and with x < 0, by summing a fine grid."""
    half = radius * (numpy.arange(-400, 400) + 0.5) / 400
    time, space = numpy.meshgrid(half, half, indexing="ij")
    # Of further directions there is a ball left: its volume at (t, x).
    left = numpy.clip((radius - numpy.abs(time)) ** 2 - space**2, 0, None) ** ((dimension - 2) / 2)
    left *= numpy.abs(space) + numpy.abs(time) < radius
    weight = left * weigh(time, space)
    return float(weight[:400].sum() / weight.sum()), float(weight[:, :400].sum() / weight.sum())


@pytest.mark.parametrize("dimension", [2, 3, 4])
@pytest.mark.parametrize("bend", [1.2, -1.2])
def test_curved_points_are_uniform_in_the_curved_volume(
    bend: float, dimension: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = 20_000
    points = points_of(bend, dimension, number, monkeypatch)
    if bend > 0:  # de Sitter space: its volume grows with time, and is alike on both sides
        early, left = share_early(math.tanh(0.6), dimension, lambda t, x: (1 - t) ** -dimension)
    else:
        early, left = share_early(math.sin(0.6), dimension, lambda t, x: (1 + x) ** -dimension)
    assert (points[:, 0] < 0).mean() == pytest.approx(early, abs=0.02)
    assert (points[:, 1] < 0).mean() == pytest.approx(left, abs=0.02)
    assert abs((early if bend > 0 else left) - 0.5) > 0.1  # it is the curvature that is seen


@pytest.mark.parametrize("bend", [0.0, 1.6, -2.0])
def test_bends_that_cannot_be(bend: float) -> None:
    with pytest.raises(ValueError, match=r"bend: is .*, but takes a number from -1.5 to 1.5 that is not 0"):
        curved(9, 2, bend, random(1))
