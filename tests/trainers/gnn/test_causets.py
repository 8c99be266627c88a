"""Causal sets: what theory says of them, and what every one of them must be."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.gnn.causets import (
    Order,
    _in_diamond,
    chains,
    closed,
    expected_fraction,
    layered,
    links,
    myrheim_meyer,
    ordering_fraction,
    percolation,
    sprinkle,
)

THEORY = {2: 1 / 2, 3: 8 / 35, 4: 1 / 10}
"""Myrheim's and Meyer's ordering fractions, by dimension."""


def random(*seed: int) -> numpy.random.Generator:
    return numpy.random.default_rng(seed)


KINDS: dict[str, Callable[[numpy.random.Generator, int], Order]] = {
    "sprinkled in 2": lambda generator, mean: sprinkle(mean, 2, generator),
    "sprinkled in 3": lambda generator, mean: sprinkle(mean, 3, generator),
    "sprinkled in 4": lambda generator, mean: sprinkle(mean, 4, generator),
    "layered": lambda generator, mean: layered(mean, generator, generator.uniform(0, 1)),
    "percolation": lambda generator, mean: percolation(mean, generator.uniform(0, 1), generator),
}

anywhere = st.tuples(st.sampled_from(sorted(KINDS)), st.integers(0, 10**6), st.integers(1, 40))


def made(given: tuple[str, int, int]) -> Order:
    kind, seed, mean = given
    return KINDS[kind](random(seed), mean)


# --- Sprinklings and theory --------------------------------------------------------------------------


@pytest.mark.parametrize("dimension", THEORY)
def test_ordering_fractions_are_those_of_theory(dimension: int) -> None:
    """The mean of independent sets lies within four standard errors of what Meyer derived.

    That is a bound of about 0.006, 0.005 and 0.003: a diamond that is a ball, or a density that
    is wrong by one power, misses it by far.
    """
    fractions = numpy.array(
        [ordering_fraction(sprinkle(150, dimension, random(dimension, number))) for number in range(400)]
    )
    error = fractions.std(ddof=1) / len(fractions) ** 0.5
    assert error < 0.002
    assert abs(fractions.mean() - THEORY[dimension]) < 4 * error


@pytest.mark.parametrize(("dimension", "fraction"), THEORY.items())
def test_the_formula_has_the_exact_values(dimension: int, fraction: float) -> None:
    assert expected_fraction(dimension) == pytest.approx(fraction, rel=1e-12)


def test_one_dimension_is_a_chain() -> None:
    assert expected_fraction(1) == pytest.approx(1)


@given(st.floats(1.001, 9.9))
def test_the_estimator_inverts_the_formula(dimension: float) -> None:
    """For an order with that fraction: of 20,000 pairs, so to their resolution."""
    pairs = 200 * 199 // 2
    wanted = expected_fraction(dimension)
    order = numpy.zeros((200, 200), dtype=bool)
    rows, columns = numpy.triu_indices(200, k=1)
    related = round(wanted * pairs)
    order[rows[:related], columns[:related]] = True
    assert ordering_fraction(order) == related / pairs
    assert expected_fraction(myrheim_meyer(order)) == pytest.approx(
        max(related / pairs, expected_fraction(10)), abs=1e-12
    )


def test_the_estimator_stays_within_its_bounds() -> None:
    antichain, chain = numpy.zeros((9, 9), dtype=bool), numpy.triu(numpy.ones((9, 9), dtype=bool), k=1)
    assert myrheim_meyer(antichain) == pytest.approx(10)
    assert myrheim_meyer(chain) == pytest.approx(1)
    assert myrheim_meyer(antichain, highest=4) == pytest.approx(4)


@pytest.mark.parametrize("dimension", THEORY)
def test_the_estimator_finds_the_dimension(dimension: int) -> None:
    estimates = [myrheim_meyer(sprinkle(300, dimension, random(7, number))) for number in range(20)]
    assert numpy.mean(estimates) == pytest.approx(dimension, abs=0.15)


def test_the_number_of_elements_is_poisson_distributed() -> None:
    """Mean and variance are both the density times the volume."""
    numbers = numpy.array([len(sprinkle(20, 2, random(number))) for number in range(3000)])
    assert abs(numbers.mean() - 20) < 4 * (20 / 3000) ** 0.5
    assert abs(numbers.var(ddof=1) - 20) < 4 * 20 * (2 / 3000) ** 0.5


@given(st.integers(0, 10**6), st.integers(2, 5))
@settings(deadline=None, max_examples=50)
def test_points_lie_in_the_diamond_by_rising_time(seed: int, dimension: int) -> None:
    points = _in_diamond(100, dimension, random(seed))
    assert points.shape == (100, dimension)
    time, radius = points[:, 0], numpy.linalg.norm(points[:, 1:], axis=1)
    assert (numpy.abs(time) + radius <= 1 + 1e-12).all()
    assert (numpy.diff(time) >= 0).all()


@pytest.mark.parametrize("dimension", THEORY)
def test_points_are_uniform_in_the_diamond(dimension: int) -> None:
    """Of the volume, 1 - (1/2)^d lies within |t| < 1/2; and half of each slice in half of its balls."""
    number = 20_000
    points = _in_diamond(number, dimension, random(3))
    time, radius = numpy.abs(points[:, 0]), numpy.linalg.norm(points[:, 1:], axis=1)
    near = 1 - 0.5**dimension
    assert (time < 0.5).mean() == pytest.approx(near, abs=4 * (near * (1 - near) / number) ** 0.5)
    inner = radius < (1 - time) * 0.5 ** (1 / (dimension - 1))
    assert inner.mean() == pytest.approx(0.5, abs=4 * 0.5 / number**0.5)
    assert (points > 0).mean(axis=0) == pytest.approx([0.5] * dimension, abs=4 * 0.5 / number**0.5)


@pytest.mark.parametrize("dimension", THEORY)
def test_relations_are_those_of_light_cones(dimension: int) -> None:
    generator, again = random(5), random(5)
    order = sprinkle(40, dimension, generator)
    points = _in_diamond(max(2, int(again.poisson(40))), dimension, again)
    for one, other in combinations(range(len(points)), 2):
        apart = points[other] - points[one]
        assert order[one, other] == (apart[0] >= numpy.linalg.norm(apart[1:]))
    assert order.any()


# --- Every kind is a partial order -------------------------------------------------------------------


@given(anywhere)
@settings(deadline=None, max_examples=100)
def test_orders_have_no_cycles_and_are_transitive(given: tuple[str, int, int]) -> None:
    order = made(given)
    assert order.dtype == bool
    assert not numpy.tril(order).any()  # nothing precedes itself or an earlier one
    implied = (order.astype(int) @ order.astype(int)) > 0
    assert not (implied & ~order).any()


def reachable(relation: Order) -> Order:
    """The closure by walking from each element, which shares nothing with `closed`."""
    found = numpy.zeros_like(relation)
    for start in range(len(relation)):
        waiting = [start]
        while waiting:
            for after in numpy.flatnonzero(relation[waiting.pop()]).tolist():
                if not found[start, after]:
                    found[start, after] = True
                    waiting.append(after)
    return found


@given(st.integers(0, 10**6), st.integers(0, 25), st.floats(0, 1))
@settings(deadline=None, max_examples=60)
def test_the_closure_is_what_can_be_reached(seed: int, number: int, share: float) -> None:
    relation = numpy.triu(random(seed).random((number, number)) < share, k=1)
    before = relation.copy()
    assert (closed(relation) == reachable(relation)).all()
    assert (relation == before).all()


@given(anywhere)
@settings(deadline=None, max_examples=60)
def test_links_are_relations_with_nothing_between(given: tuple[str, int, int]) -> None:
    order = made(given)
    bare = links(order)
    number = len(order)
    for one, other in combinations(range(number), 2):
        between = any(order[one, middle] and order[middle, other] for middle in range(one + 1, other))
        assert bare[one, other] == (order[one, other] and not between)
    assert (closed(bare) == order).all()  # and they are enough


def longest(order: Order, element: int) -> int:
    """The longest chain down from an element, trying every one."""
    before = numpy.flatnonzero(order[:, element]).tolist()
    return max((1 + longest(order, each) for each in before), default=0)


@given(anywhere.filter(lambda given: given[2] <= 10))
@settings(deadline=None, max_examples=60)
def test_chains_are_the_longest(given: tuple[str, int, int]) -> None:
    order = made(given)[:12, :12]  # of a chain of 12, brute force tries 2 ** 11
    assert chains(order).tolist() == [longest(order, element) for element in range(len(order))]


# --- Layered and random orders -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "sizes"),
    [(64, [16, 32, 16]), (65, [16, 32, 17]), (7, [2, 3, 2]), (4, [1, 2, 1]), (1, [0, 0, 1]), (0, [0, 0, 0])],
)
def test_layers_are_a_quarter_a_half_and_a_quarter(number: int, sizes: list[int]) -> None:
    order = layered(number, random(2), density=1.0)
    bottom, middle, top = sizes
    below, above = slice(0, bottom), slice(bottom + middle, number)
    between = slice(bottom, bottom + middle)
    assert len(order) == number == bottom + middle + top
    assert order[below, between].all() and order[between, above].all() and order[below, above].all()
    assert not order[below, below].any() and not order[between, between].any()
    assert not order[above, above].any()


@pytest.mark.parametrize("density", [0.3, 0.5, 0.7])
def test_layered_orders_have_three_levels(density: float) -> None:
    """Links lead from one level to the next alone; their share is the density."""
    orders = [layered(80, random(9, number), density) for number in range(30)]
    shares = []
    for order in orders:
        level = numpy.repeat([0, 1, 2], [20, 40, 20])
        assert set(chains(order)) == {0, 1, 2}
        first, second = numpy.nonzero(links(order))
        assert (level[second] - level[first] == 1).all()
        shares.append(len(first) / (2 * 20 * 40))
        assert order[:20, 60:].mean() > 0.85  # the theorem's: nearly every pair, bottom to top
    error = (density * (1 - density) / (1600 * 30)) ** 0.5
    assert numpy.mean(shares) == pytest.approx(density, abs=4 * error)


def test_percolation_has_its_extremes() -> None:
    assert ordering_fraction(percolation(20, 0.0, random(1))) == 0
    assert ordering_fraction(percolation(20, 1.0, random(1))) == 1


def test_fractions_of_the_smallest_sets() -> None:
    assert [ordering_fraction(numpy.zeros((number, number), dtype=bool)) for number in (0, 1, 2)] == [0, 0, 0]


@pytest.mark.parametrize(("mean", "dimension"), [(0, 2), (-1, 2), (float("nan"), 2), (9, 1), (9, 0)])
def test_sprinklings_that_cannot_be(mean: float, dimension: int) -> None:
    with pytest.raises(ValueError, match=r"takes a positive mean and a dimension of at least 2"):
        sprinkle(mean, dimension, random(1))


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_probabilities_that_are_none(value: float) -> None:
    with pytest.raises(ValueError, match=r"density: is .* but takes a probability"):
        layered(9, random(1), value)
    with pytest.raises(ValueError, match=r"probability: is .* but takes a probability"):
        percolation(9, value, random(1))
