"""Orders of any length: each number once, the same wherever and in whatever pieces it is asked for."""

from __future__ import annotations

import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from castoff.trainers.distributed import permutation
from castoff.trainers.distributed.permutation import Permutation

lengths = st.integers(0, 3000)
seeds = st.integers(0, 2**63 - 1)
ends = st.none() | st.integers(-3100, 3100)
slices = st.builds(slice, ends, ends, st.none() | st.integers(-9, -1) | st.integers(1, 9))


@pytest.fixture(params=["written down", "worked out"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both kinds of order, whatever the length."""
    monkeypatch.setattr(permutation, "_TABLE_UP_TO", 10_000 if request.param == "written down" else 0)


@pytest.mark.usefixtures("kind")
class TestOrders:
    @given(lengths, seeds)
    def test_each_number_comes_once(self, length: int, seed: int) -> None:
        order = Permutation(length, seed)
        assert len(order) == length
        assert sorted(order) == list(range(length))

    @given(lengths, seeds, slices)
    def test_slices_equal_single_elements(self, length: int, seed: int, some: slice) -> None:
        order = Permutation(length, seed)
        one_by_one = [order[place] for place in range(length)]
        assert all(type(number) is int for number in one_by_one)
        assert order.tensor().tolist() == list(order) == one_by_one
        part = order[some]
        assert part.tensor().tolist() == list(part) == one_by_one[some]
        assert [part[place] for place in range(-len(part), 0)] == one_by_one[some]
        assert part.at(range(len(part))) == one_by_one[some]
        assert part[some].tensor().tolist() == one_by_one[some][some]
        for beyond in (len(part), -len(part) - 1):
            with pytest.raises(IndexError):
                part[beyond]

    @given(lengths, seeds, slices)
    def test_it_is_the_same_in_another_process(self, length: int, seed: int, some: slice) -> None:
        part = Permutation(length, seed)[some]
        torch.rand(())
        there = pickle.loads(pickle.dumps(part))
        assert (there, hash(there)) == (part, hash(part))
        assert list(there) == list(part)

    def test_another_seed_is_another_order(self) -> None:
        first, second = (Permutation(1000, seed) for seed in (1, 2))
        assert first != second
        assert first != first[1:]
        assert 0 < sum(a == b for a, b in zip(first, second, strict=True)) + 1 < 20


@pytest.mark.parametrize("length", [2**20 + 1, 3_000_017])
def test_each_of_many_numbers_comes_once(length: int) -> None:
    assert torch.equal(Permutation(length, 5).tensor().sort().values, torch.arange(length))


def test_many_that_follow_each_other_lie_anywhere() -> None:
    """Ten thousand places of a hundred million, in a row or as far apart: their numbers fill all hundredths
    alike, and so do the steps between them."""
    length = 100_000_000
    for some in (slice(10_000), slice(31_415_926, 31_425_926), slice(None, None, 10_000)):
        numbers = Permutation(length, 1)[some].tensor()
        filled = (numbers // (length // 100)).bincount(minlength=100).double()
        assert ((filled - 100) ** 2 / 100).sum() < 200  # 99 is to be expected, give or take 14
        steps = numbers.diff().remainder(length // 100 * 100) // (length // 100)
        assert ((steps.bincount(minlength=100).double() - 99.99) ** 2 / 99.99).sum() < 200


def test_places_beyond_four_bytes() -> None:
    order = Permutation(10**11, 3)
    places = [0, 2**31, 2**32 + 7, 10**11 - 1]
    assert order.at(places) == [order[place] for place in places]
    assert len(set(order.at(places))) == 4
