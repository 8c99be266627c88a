"""Two causal sets made into one."""

from __future__ import annotations

import numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from castoff.trainers.gnn.causets.merging import merged
from castoff.trainers.gnn.causets.sprinkling import sprinkled


@given(st.integers(0, 10**6), st.integers(2, 25), st.integers(2, 25), st.integers(0, 30))
@settings(max_examples=60)
def test_each_part_keeps_its_order(seed: int, first: int, second: int, relations: int) -> None:
    generator = numpy.random.default_rng(seed)
    early, late = sprinkled(first, 2, generator), sprinkled(second, 4, generator)
    order = merged(early, late, relations, generator)
    assert (order[:first, :first] == early).all() and (order[first:, first:] == late).all()
    assert not order[first:, :first].any()
    assert order[:first, first:].any() == (relations > 0)
    assert not ((order.astype(int) @ order.astype(int) > 0) & ~order).any()
