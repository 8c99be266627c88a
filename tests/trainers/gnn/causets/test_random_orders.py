"""Orders at random: layers, percolations, faults."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castoff.trainers.gnn.causets.order import chains, links, ordering_fraction
from castoff.trainers.gnn.causets.random_orders import destroyed, layered, matched_percolation, percolation
from castoff.trainers.gnn.causets.sprinkling import sprinkled


def random(*seed: int) -> numpy.random.Generator:
    return numpy.random.default_rng(seed)


@pytest.mark.parametrize(
    ("number", "sizes"),
    [(64, [16, 32, 16]), (66, [16, 34, 16]), (7, [2, 3, 2]), (4, [1, 2, 1])],
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
def test_kleitman_rothschild_orders_have_three_levels(density: float) -> None:
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


@given(st.lists(st.floats(0.5, 2), min_size=2, max_size=6), st.integers(8, 60))
@settings(max_examples=40)
def test_layers_have_their_shares(shares: list[float], number: int) -> None:
    order = layered(number, random(3), 1.0, tuple(shares))
    sizes = numpy.unique(chains(order), return_counts=True)[1]
    assert len(order) == number
    expected = [share / sum(shares) * number for share in shares]
    if min(expected) > 1:
        assert sizes.tolist() == pytest.approx(expected, abs=1)


def test_percolation_has_its_extremes() -> None:
    assert ordering_fraction(percolation(20, 0.0, random(1))) == 0
    assert ordering_fraction(percolation(20, 1.0, random(1))) == 1


@given(st.floats(0, 1), st.integers(0, 1000))
@settings(max_examples=40)
def test_matched_percolation_has_the_fraction(fraction: float, seed: int) -> None:
    assert ordering_fraction(matched_percolation(50, fraction, random(seed))) == pytest.approx(
        fraction, abs=0.05
    )


@given(st.integers(0, 1000), st.floats(0.05, 0.5))
@settings(max_examples=40)
def test_what_is_destroyed_has_lost_and_gained_links(seed: int, share: float) -> None:
    before = sprinkled(40, 3, random(seed))
    after = destroyed(before, share, random(seed, 1))
    flipped = round(share * links(before).sum())
    assert (links(before) & ~links(after)).any()
    assert (after & ~before).sum() > 0  # at least what was added, and what follows
    assert (after & ~before).sum() >= flipped or flipped > (~before).sum()
    same = destroyed(before, 0.0, random(seed, 1))
    assert (same == before).all()


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_probabilities_that_are_none(value: float) -> None:
    with pytest.raises(ValueError, match=r"density: is .* but takes a probability"):
        layered(9, random(1), value)
    with pytest.raises(ValueError, match=r"probability: is .* but takes a probability"):
        percolation(9, value, random(1))
    with pytest.raises(ValueError, match=r"share: is .* but takes a probability"):
        destroyed(sprinkled(9, 2, random(1)), value, random(1))
