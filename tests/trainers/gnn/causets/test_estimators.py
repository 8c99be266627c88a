"""Estimators of the dimension: what theory says of diamonds, and what was counted by hand."""

from __future__ import annotations

import math

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.trainers.gnn.causets.estimators import (
    HIGHEST,
    LOWEST,
    dimension_of,
    expected_fraction,
    midpoint_scaling,
    myrheim_meyer,
    myrheim_meyer_inside,
)
from castoff.trainers.gnn.causets.order import Order, by_time, ordering_fraction
from castoff.trainers.gnn.causets.sprinkling import in_diamond, sprinkled

THEORY = {2: 1 / 2, 3: 8 / 35, 4: 1 / 10}
"""Myrheim's and Meyer's ordering fractions, by dimension."""


def chain(number: int) -> Order:
    return numpy.triu(numpy.ones((number, number), dtype=bool), k=1)


def antichain(number: int) -> Order:
    return numpy.zeros((number, number), dtype=bool)


def with_ends(number: int, dimension: int, seed: int) -> Order:
    """A sprinkled diamond, its own two ends among the elements."""
    points = in_diamond(number, dimension, numpy.random.default_rng(seed))
    tip = numpy.zeros((1, dimension))
    tip[0, 0] = 1.0
    return by_time(numpy.concatenate([-tip, points, tip]))


@pytest.mark.parametrize(("dimension", "fraction"), THEORY.items())
def test_the_formula_has_the_exact_values(dimension: int, fraction: float) -> None:
    assert expected_fraction(dimension) == pytest.approx(fraction, rel=1e-12)


def test_one_dimension_is_a_chain() -> None:
    assert expected_fraction(1) == pytest.approx(1)


@pytest.mark.parametrize("dimension", THEORY)
def test_ordering_fractions_are_those_of_theory(dimension: int) -> None:
    """The mean of independent sets lies within four standard errors of what Meyer derived.

    That is a bound of about 0.006, 0.005 and 0.003: a diamond that is a ball, or a density that
    is wrong by one power, misses it by far.
    """
    generators = [numpy.random.default_rng([dimension, number]) for number in range(400)]
    fractions = numpy.array([ordering_fraction(sprinkled(150, dimension, each)) for each in generators])
    error = fractions.std(ddof=1) / len(fractions) ** 0.5
    assert error < 0.002
    assert abs(fractions.mean() - THEORY[dimension]) < 4 * error


@given(st.floats(LOWEST + 0.001, HIGHEST - 0.001))
def test_the_inverse_finds_the_dimension(dimension: float) -> None:
    assert dimension_of(expected_fraction(dimension)) == pytest.approx(dimension, abs=1e-6)


def test_estimates_stay_within_their_bounds() -> None:
    for estimate in (myrheim_meyer, myrheim_meyer_inside, midpoint_scaling):
        assert estimate(antichain(9)) == pytest.approx(HIGHEST)
        assert LOWEST <= estimate(chain(1)) <= HIGHEST
        assert LOWEST <= estimate(chain(2)) <= HIGHEST
    assert myrheim_meyer(chain(9)) == pytest.approx(LOWEST)
    assert myrheim_meyer_inside(chain(9)) == pytest.approx(LOWEST)


def test_a_chain_is_halved_by_its_middle() -> None:
    """Of nine elements five lie from an end to the middle."""
    assert midpoint_scaling(chain(9)) == pytest.approx(max(math.log2(9 / 5), LOWEST))


def test_a_grid_of_light_rays_is_halved_in_both_directions() -> None:
    """Of 7 by 7 elements, each before those that are above it in both, 4 by 4 lie up to the middle."""
    rows, columns = (each.ravel() for each in numpy.mgrid[:7, :7])
    order = (rows[:, None] <= rows) & (columns[:, None] <= columns) & ~numpy.eye(49, dtype=bool)
    assert not numpy.tril(order).any()
    assert midpoint_scaling(order) == pytest.approx(math.log2(49 / 16))


@pytest.mark.parametrize("dimension", THEORY)
def test_estimators_find_the_dimension_of_large_diamonds(dimension: int) -> None:
    orders = [with_ends(400, dimension, seed) for seed in range(12)]
    assert numpy.mean([*map(myrheim_meyer_inside, orders)]) == pytest.approx(dimension, abs=0.12)
    # The best of many halves is larger than the half in the middle: a little too low for few elements.
    assert numpy.mean([*map(midpoint_scaling, orders)]) == pytest.approx(dimension, abs=0.5)
