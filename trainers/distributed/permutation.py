"""A random order of all numbers below n that depends only on (n, seed), for any n."""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable, Iterator, Sequence
from math import isqrt
from typing import overload

import torch
from torch import Tensor

AT_ONCE = 2048
"""Number of positions looked up at once when all are wanted; fewer would take almost as long."""

_TABLE_UP_TO = 2**20
"""The longest order kept as a table (4 MB), from which a lookup is ten times faster."""

_ROUNDS = 6
"""Rounds of the Feistel network. With three, a few lookups distinguish it from a random order (Luby and
Rackoff, SIAM J. Comput. 17, 1988); from five on, about as many as a table has entries (Patarin, CRYPTO
2004)."""


class Permutation(Sequence[int]):
    """0 … length - 1, each once, in an order that depends on the seed; a slice is a Permutation, too.

    A long order takes memory for 6 √length numbers: 0.4 MB for 60 million. Only (length, seed) is pickled,
    and the order is made again in the other process.
    """

    def __init__(self, length: int, seed: int):
        generator = torch.Generator().manual_seed(seed)
        self._of = (length, seed)
        self._places = range(length)
        few = length <= _TABLE_UP_TO
        self._order = _Table(length, generator) if few else _Feistel(length, generator)
        self._one: Callable[[int], int] = self._order.one

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Permutation: ...
    def __getitem__(self, place: int | slice) -> int | Permutation:
        if type(place) is int:
            return self._one(self._places[place])
        if not isinstance(place, slice):
            return self._one(self._places[operator.index(place)])
        return self._some(self._places[place])

    def tensor(self) -> Tensor:
        """All numbers in order, shape (length,)."""
        places = self._places
        if not places:  # arange refuses an empty range with stop < start
            return torch.empty(0, dtype=torch.int64)
        return self._order.many(torch.arange(places.start, places.stop, places.step))

    def at(self, places: Sequence[int]) -> list[int]:
        """The numbers at many positions, none of them negative."""
        mine = torch.tensor(places, dtype=torch.int64) * self._places.step + self._places.start
        numbers: list[int] = self._order.many(mine).tolist()
        return numbers

    def __iter__(self) -> Iterator[int]:
        for first in range(0, len(self), AT_ONCE):
            yield from self[first : first + AT_ONCE].tensor().tolist()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Permutation) and (self._of, self._places) == (other._of, other._places)

    def __hash__(self) -> int:
        return hash((self._of, self._places))

    def __reduce__(self) -> tuple[object, ...]:
        return _again, (*self._of, self._places)

    def _some(self, places: range) -> Permutation:
        some = Permutation.__new__(Permutation)
        vars(some).update(vars(self), _places=places)
        return some


def _again(length: int, seed: int, places: range) -> Permutation:
    return Permutation(length, seed)._some(places)


class _Table:
    """A random order as a table."""

    def __init__(self, length: int, generator: torch.Generator):
        by_one, self._numbers = _both(torch.randperm(length, generator=generator, dtype=torch.int32))
        self.one = by_one.__getitem__

    def many(self, places: Tensor) -> Tensor:
        """The numbers at these positions."""
        return self._numbers[places].long()


class _Feistel:
    """A Feistel network on numbers of two digits: in each round, a table maps one digit to an addend of the
    other.

    The digits' bases are about the square root of the length, so that there are few more two-digit numbers
    than `length`. A result ≥ length goes through the network again until it is below; the mapping remains
    one-to-one (Black and Rogaway, CT-RSA 2002).
    """

    def __init__(self, length: int, generator: torch.Generator):
        self._length = length
        of_high = isqrt(length - 1) + 1
        of_low = -(-length // of_high)
        self._bases = of_high, of_low
        self._by_one, self._tensors = [], []
        for _ in range(_ROUNDS // 2):
            to_high, seen_high = _both(torch.randint(of_high, (of_low,), generator=generator))
            to_low, seen_low = _both(torch.randint(of_low, (of_high,), generator=generator))
            self._by_one.append((to_high, to_low))
            self._tensors.append((seen_high, seen_low))

    def one(self, place: int) -> int:
        """The number at a position, counted from 0."""
        of_high, of_low = self._bases
        while True:
            high, low = divmod(place, of_low)
            for to_high, to_low in self._by_one:
                high = (high + to_high[low]) % of_high
                low = (low + to_low[high]) % of_low
            place = high * of_low + low
            if place < self._length:
                return place

    def many(self, places: Tensor) -> Tensor:
        """The numbers at these positions."""
        numbers = self._through(places)
        outside = (numbers >= self._length).nonzero().squeeze(1)
        while len(outside):
            again = self._through(numbers[outside])
            numbers[outside] = again
            outside = outside[again >= self._length]
        return numbers

    def _through(self, places: Tensor) -> Tensor:
        of_high, of_low = self._bases
        high, low = places.div(of_low, rounding_mode="floor"), places.remainder(of_low)
        for to_high, to_low in self._tensors:
            high = (high + to_high[low]).remainder_(of_high)
            low = (low + to_low[high]).remainder_(of_low)
        return high * of_low + low


def _both(numbers: Tensor) -> tuple[array[int], Tensor]:
    """The numbers as an array and a tensor that share memory: an array's lookup is ten times faster."""
    made = array("i" if numbers.dtype == torch.int32 else "q", [0]) * max(len(numbers), 1)
    seen = torch.frombuffer(made, dtype=numbers.dtype)[: len(numbers)]
    return made, seen.copy_(numbers)
