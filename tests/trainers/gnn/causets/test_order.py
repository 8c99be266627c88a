"""Partial orders as matrices: brute force finds the same."""

from __future__ import annotations

from itertools import combinations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castoff.trainers.gnn.causets.order import (
    Order,
    by_time,
    chains,
    closed,
    interval,
    largest_interval,
    links,
    ordering_fraction,
    reversed_in_time,
)


@st.composite
def relations(draw: st.DrawFn, largest: int = 25) -> Order:
    """Any strictly upper triangular relation."""
    number, share = draw(st.integers(0, largest)), draw(st.floats(0, 1))
    generator = numpy.random.default_rng(draw(st.integers(0, 10**6)))
    return numpy.triu(generator.random((number, number)) < share, k=1)


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


@given(relations())
@settings(max_examples=60)
def test_the_closure_is_what_can_be_reached(relation: Order) -> None:
    before = relation.copy()
    assert (closed(relation) == reachable(relation)).all()
    assert (relation == before).all()


@given(relations())
@settings(max_examples=60)
def test_links_are_relations_with_nothing_between(relation: Order) -> None:
    order = closed(relation)
    bare = links(order)
    for one, other in combinations(range(len(order)), 2):
        between = any(order[one, middle] and order[middle, other] for middle in range(one + 1, other))
        assert bare[one, other] == (order[one, other] and not between)
    assert (closed(bare) == order).all()  # and they are enough


def longest(order: Order, element: int) -> int:
    """The longest chain down from an element, trying every one."""
    before = numpy.flatnonzero(order[:, element]).tolist()
    return max((1 + longest(order, each) for each in before), default=0)


@given(relations(largest=11))  # of a chain of 12, brute force tries 2 ** 11
@settings(max_examples=60)
def test_chains_are_the_longest(relation: Order) -> None:
    order = closed(relation)
    assert chains(order).tolist() == [longest(order, element) for element in range(len(order))]
    back = reversed_in_time(order)
    assert chains(back).tolist() == [longest(back, element) for element in range(len(order))]


@given(relations())
@settings(max_examples=60)
def test_the_largest_interval_is_the_largest(relation: Order) -> None:
    order = closed(relation)
    sizes = {
        (one, other): int((order[one] & order[:, other]).sum())
        for one, other in combinations(range(len(order)), 2)
        if order[one, other]
    }
    found = largest_interval(order)
    if found is None:
        assert not sizes
        return
    assert sizes[found] == max(sizes.values())
    inside = interval(order, *found)
    assert len(inside) == sizes[found] + 2
    assert inside[0, 1:].all() and inside[:-1, -1].all()  # all between its ends


def test_fractions_of_the_smallest_sets() -> None:
    assert [ordering_fraction(numpy.zeros((number, number), dtype=bool)) for number in (0, 1, 2)] == [0, 0, 0]
    assert ordering_fraction(numpy.triu(numpy.ones((3, 3), dtype=bool), k=1)) == 1


@pytest.mark.parametrize("dimension", [2, 3, 4])
def test_relations_are_those_of_light_cones(dimension: int) -> None:
    points = numpy.random.default_rng(dimension).random((40, dimension))
    order = by_time(points)
    rising = points[points[:, 0].argsort()]
    for one, other in combinations(range(40), 2):
        apart = rising[other] - rising[one]
        assert order[one, other] == (apart[0] >= numpy.linalg.norm(apart[1:]))
    assert order.any() and not numpy.tril(order).any()
