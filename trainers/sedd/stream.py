"""Reads a store in blocks of neighbours, if it is larger than memory or on a slow disk.

With such a store, each protein that is looked up takes a read. A stream reads blocks of neighbours in random
order, and shuffles the proteins of many blocks together: nearly as good an order, in about ten megabytes per
worker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, overload

import torch
from torch.utils.data import Dataset, IterableDataset, Subset

from castoff.trainers.distributed.permutation import Permutation
from castoff.trainers.distributed.randomness import ORDER, derived
from castoff.trainers.sedd.alphabet import Tokens
from castoff.trainers.sedd.data import Protein, Proteins, sample
from castoff.trainers.sedd.store.token_store import TokenStore
from castoff.trainers.task.splitting import split

BLOCK = 512
"""Number of neighbouring proteins that are read at once: 150 kB of UniRef50."""
MIXED = 64
"""Number of blocks whose proteins are shuffled together."""
_LEAST_BLOCKS = 1000
"""A small store is cut into at least this many blocks, so that its parts have the requested shares."""


class ProteinStream(IterableDataset[Protein]):
    """Samples of the proteins in some blocks of a store, each once, in an order drawn from torch.

    It has the methods that the core's loaders use: `shard` for a part of it, and `state_dict` to resume
    exactly where it was. Shards divide the blocks among them, so the memory of a shard depends neither on the
    store's size nor on the number of shards.
    """

    rng_sources = ("torch",)

    def __init__(
        self,
        store: TokenStore,
        max_length: int,
        blocks: Sequence[int],
        *,
        block: int = BLOCK,
        mixed: int = MIXED,
        num_shards: int = 1,
        index: int = 0,
    ):
        self._store = store
        self._max_length = max_length
        self._blocks = blocks
        self._block = block
        self._mixed = mixed
        self._num_shards = num_shards
        self._index = index
        self._order: int | None = None
        """The random number that this epoch's order follows from; None: the epoch has not begun."""
        self._mix = 0
        """Index of the group of mixed blocks that this shard is yielding."""
        self._yielded = 0
        """Number of this group's proteins that were yielded."""

    def shard(self, num_shards: int, index: int) -> ProteinStream:
        """One of `num_shards` parts; no block is in two of them."""
        return ProteinStream(
            self._store,
            self._max_length,
            self._blocks,
            block=self._block,
            mixed=self._mixed,
            num_shards=num_shards,
            index=index,
        )

    def __iter__(self) -> Iterator[Protein]:
        """Iterate over the samples from the current position. The order is drawn now, so that all shards draw
        it.
        """
        if self._order is None:
            self._order = int(torch.randint(1 << 62, ()))
        return self._samples(self._order)

    def state_dict(self) -> dict[str, Any]:
        """The position in the epoch, as three numbers."""
        return {"order": self._order, "mix": self._mix, "given": self._yielded}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a position."""
        self._order, self._mix, self._yielded = state["order"], state["mix"], state["given"]

    def _samples(self, order: int) -> Iterator[Protein]:
        turns = Permutation(len(self._blocks), derived(ORDER, order))[self._index :: self._num_shards]
        while group := turns[self._mix * self._mixed : (self._mix + 1) * self._mixed]:
            proteins = [
                protein for turn in group for protein in _block(self._store, self._blocks[turn], self._block)
            ]
            for index in Permutation(len(proteins), derived(ORDER, order, self._index, self._mix))[
                self._yielded :
            ]:
                self._yielded += 1
                yield sample(proteins[index], self._max_length)
            self._mix, self._yielded = self._mix + 1, 0
        self._order, self._mix = None, 0


def split_into_blocks(
    store: TokenStore, max_length: int, shares: Sequence[float], seed: int, *, block: int = BLOCK
) -> tuple[ProteinStream, list[Subset[Protein]]]:
    """Split a store into disjoint parts of whole blocks: the first as a stream, the others as sets with a
    length.

    Raises:
        ConfigError: the shares are negative or add up to more than 1.
    """
    block = max(1, min(block, len(store) // _LEAST_BLOCKS))
    number = -(-len(store) // block)
    first, *parts = split(_Numbers(number), shares, seed)
    proteins = Proteins(store, max_length)
    held_out = [Subset(proteins, _InBlocks(part.indices, block, len(store))) for part in parts]
    return ProteinStream(store, max_length, first.indices, block=block), held_out


def _block(store: TokenStore, number: int, size: int) -> list[Tokens]:
    return store.run(number * size, min((number + 1) * size, len(store)))


class _Numbers(Dataset[int]):
    """The numbers 0 to length - 1."""

    def __init__(self, length: int):
        self._length = length

    def __len__(self) -> int:
        return self._length


class _InBlocks(Sequence[int]):
    """The indices of the proteins in some blocks; a store's last block may be shorter than the others."""

    def __init__(self, blocks: Sequence[int], size: int, total: int):
        last = (total - 1) // size
        self._blocks = blocks
        self._size = size
        self._missing = 0
        """How many proteins the store's last block lacks, if it is among these blocks."""
        self._all_before = len(blocks) * size
        """The position at which the lacking proteins would begin."""
        for position, number in enumerate(blocks):
            if number == last:
                self._missing = (last + 1) * size - total
                self._all_before = (position + 1) * size - self._missing
        self._places = range(len(blocks) * size - self._missing)

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, place: int) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[int]: ...
    def __getitem__(self, place: int | slice) -> int | Sequence[int]:
        if isinstance(place, slice):
            some = copy(self)
            some._places = self._places[place]
            return some
        place = self._places[place]
        number, within = divmod(place if place < self._all_before else place + self._missing, self._size)
        return self._blocks[number] * self._size + within
