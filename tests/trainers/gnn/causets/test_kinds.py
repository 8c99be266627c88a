"""Every kind is a partial order of the size that was asked for, and has what makes it that kind."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castoff.trainers.gnn.causets.kinds import DIMENSIONS, KINDS
from castoff.trainers.gnn.causets.order import Order, ordering_fraction, steps
from castoff.trainers.gnn.causets.settings import MIX, NAMES

MANIFOLD_LIKE = {"sprinkled", "region", "curved", "cut"}


def random(*seed: int) -> numpy.random.Generator:
    return numpy.random.default_rng(seed)


def check_order(order: Order) -> None:
    assert order.dtype == bool
    assert not numpy.tril(order).any()  # nothing precedes itself or an earlier one
    assert not ((steps(order) > 0) & ~order).any()


def test_names_are_those_of_the_kinds() -> None:
    assert tuple(KINDS) == NAMES
    assert set(MIX) == set(NAMES)


@given(st.sampled_from(NAMES), st.integers(0, 10**6), st.integers(8, 60))
@settings(max_examples=150)
def test_every_kind_is_an_order_of_its_size(name: str, seed: int, number: int) -> None:
    causet = KINDS[name](number, random(seed))
    assert len(causet.order) == number
    check_order(causet.order)
    assert causet.manifold_like == (name in MANIFOLD_LIKE)
    if causet.manifold_like:
        assert causet.dimension in DIMENSIONS
    elif name != "merged":
        assert causet.dimension == 0


def test_half_of_all_are_manifold_like() -> None:
    """In the mix that comes by itself; so a guess is right in half of them."""
    assert 0.4 < sum(MIX[name] for name in MANIFOLD_LIKE) / sum(MIX.values()) < 0.6


def test_what_is_merged_has_a_mean_of_two_dimensions_or_none() -> None:
    dimensions = [KINDS["merged"](40, random(seed)).dimension for seed in range(80)]
    mixed = [each for each in dimensions if each]
    assert 40 < len(mixed) < 75
    assert all(DIMENSIONS[0] < each < DIMENSIONS[-1] for each in mixed)
    assert sum(each % 1 != 0 for each in mixed) > len(mixed) / 2


@pytest.mark.parametrize("number", [32, 64])
def test_percolations_have_the_ordering_fractions_of_manifold_like_sets(number: int) -> None:
    """Each has that of a set drawn for it, so no threshold tells them from such."""
    for seed in range(20):
        generator, again = random(seed), random(seed)
        found = ordering_fraction(KINDS["percolation"](number, generator).order)
        draw = KINDS["sprinkled"] if again.random() < 0.5 else KINDS["region"]
        assert found == pytest.approx(ordering_fraction(draw(number, again).order), abs=0.03)
