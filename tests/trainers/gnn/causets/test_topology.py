"""Sprinklings with slits: what precedes what is what a causal curve leads to round them."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castoff.trainers.gnn.causets.order import by_time
from castoff.trainers.gnn.causets.sprinkling import Points, in_diamond
from castoff.trainers.gnn.causets.topology import between, cut

NONE = numpy.zeros((0, 2, 2))


def rising(number: int, seed: int) -> Points:
    points = in_diamond(number, 2, numpy.random.default_rng(seed))
    return points[numpy.argsort(points[:, 0])]


def slit(*ends: tuple[float, float]) -> Points:
    return numpy.array([ends])


def precedes(one: tuple[float, float], other: tuple[float, float], slits: Points) -> bool:
    return bool(between(numpy.array([one, other]), slits)[0, 1])


def test_without_slits_it_is_a_diamond() -> None:
    points = rising(40, 1)
    assert (between(points, NONE) == by_time(points)).all()


@pytest.mark.parametrize(
    ("half", "led"),
    [
        (0.2, True),  # round the end at x = 0.2, there and back within the light cones
        (0.49, True),
        (0.51, False),  # too far: from t = -0.5 the light is at |x| = 0.5 when it comes to the slit
        (2.0, False),
    ],
)
def test_light_goes_round_a_slit_in_space(half: float, led: bool) -> None:
    """Coordinates are (t, x); the slit lies at t = 0."""
    assert precedes((-0.5, 0), (0.5, 0), slit((0, -half), (0, half))) == led


def test_a_wall_in_time_parts_left_from_right() -> None:
    wall = slit((-0.4, 0), (0.4, 0))
    assert not precedes((-0.1, -0.05), (0.1, 0.05), wall)  # the wall is there all the time between
    assert precedes((-0.1, 0.05), (0.1, 0.05), wall)
    assert precedes((-0.5, -0.05), (0.5, 0.05), wall)  # before it is there
    assert precedes((-0.1, -0.05), (0.6, 0.05), wall)  # and after it
    assert not precedes((-0.1, -0.3), (0.5, 0.31), wall)  # not slower than light


def test_two_slits_are_gone_round_one_after_the_other() -> None:
    """By (-0.2, 0.1) and (0.2, -0.1): each leg is within a light cone."""
    slits = numpy.array([[(-0.2, -3.0), (-0.2, 0.1)], [(0.2, -0.1), (0.2, 3.0)]])
    assert precedes((-0.5, 0), (0.5, 0), slits)
    slits[0, 1, 1], slits[1, 0, 1] = 0.25, -0.25  # 0.5 apart in space, 0.4 in time
    assert not precedes((-0.5, 0), (0.5, 0), slits)


@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(2, 30))
@settings(max_examples=40)
def test_slits_take_relations_away_and_leave_an_order(seed: int, slits: int, number: int) -> None:
    points = rising(number, seed)
    ends = in_diamond(2 * slits, 2, numpy.random.default_rng([seed, 1])).reshape(slits, 2, 2)
    order = between(points, ends)
    assert not (order & ~by_time(points)).any()
    assert not ((order.astype(int) @ order.astype(int) > 0) & ~order).any()


def test_slits_are_felt() -> None:
    counts = [cut(60, slits, numpy.random.default_rng(2)).sum() for slits in (1, 3)]
    free = cut(60, 0, numpy.random.default_rng(2)).sum()
    assert counts[0] < free and counts[1] < free
