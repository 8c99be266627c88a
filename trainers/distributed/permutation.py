"""All numbers below n in an order that follows from (n, seed), however many there are."""

from __future__ import annotations

import operator
from array import array
from collections.abc import Callable, Iterator, Sequence
from math import isqrt
from typing import overload

import torch
from torch import Tensor

AT_ONCE = 2048
"""Places that are looked up together where all are wanted: a few of them would take almost as long."""

_TABLE_UP_TO = 2**20
"""So many numbers stand in a table of 4 MB, from which one comes ten times faster."""

_ROUNDS = 6
"""Three make no more than a likely order, which a few looks tell from a random one (Luby and Rackoff, SIAM
J. Comput. 17, 1988); from five on it takes about as many as a table is long (Patarin, CRYPTO 2004)."""


class Permutation(Sequence[int]):
    """0 … length - 1, each once, in an order that follows from the seed; a slice is one of some of them.

    An order of many takes the memory of 6 times their square root: 0.4 MB for 60 million. What travels to
    another process is (length, seed), and it is made anew there.
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
        """All of them."""
        places = self._places
        if not places:  # arange refuses an end before its beginning
            return torch.empty(0, dtype=torch.int64)
        return self._order.many(torch.arange(places.start, places.stop, places.step))

    def at(self, places: Sequence[int]) -> list[int]:
        """The numbers in many places, none of them negative."""
        mine = torch.tensor(places, dtype=torch.int64) * self._places.step + self._places.start
        found: list[int] = self._order.many(mine).tolist()
        return found

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
    """A random order, written down."""

    def __init__(self, length: int, generator: torch.Generator):
        by_one, self._numbers = _both(torch.randperm(length, generator=generator, dtype=torch.int32))
        self.one = by_one.__getitem__

    def many(self, places: Tensor) -> Tensor:
        """The numbers in these places."""
        return self._numbers[places].long()


class _Feistel:
    """A Feistel network: a number is two digits, to one of which a table says what the other adds, in turns.

    The digits' bases are about the square root of the length, so that few more numbers have two digits
    than there are; a place whose number is none of ours goes through the network again, which leads to
    one sooner or later, and to another one from each place (Black and Rogaway, CT-RSA 2002).
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
        """The number in a place from 0 on."""
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
        """The numbers in these places."""
        found = self._through(places)
        outside = (found >= self._length).nonzero().squeeze(1)
        while len(outside):
            again = self._through(found[outside])
            found[outside] = again
            outside = outside[again >= self._length]
        return found

    def _through(self, places: Tensor) -> Tensor:
        of_high, of_low = self._bases
        high, low = places.div(of_low, rounding_mode="floor"), places.remainder(of_low)
        for to_high, to_low in self._tensors:
            high = (high + to_high[low]).remainder_(of_high)
            low = (low + to_low[high]).remainder_(of_low)
        return high * of_low + low


def _both(numbers: Tensor) -> tuple[array[int], Tensor]:
    """The same numbers twice in one place: an array gives one of them ten times faster than a tensor."""
    made = array("i" if numbers.dtype == torch.int32 else "q", [0]) * max(len(numbers), 1)
    seen = torch.frombuffer(made, dtype=numbers.dtype)[: len(numbers)]
    return made, seen.copy_(numbers)
