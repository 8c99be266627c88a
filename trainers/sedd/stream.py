"""Reads a store in blocks of neighbours, if it is larger than memory or on a slow disk.

There, looking up proteins one by one takes a read each. A stream reads a block at once, blocks in random
order, and mixes the proteins of many blocks: nearly as good an order, in some ten megabytes a worker.
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
"""Neighbours that are read at once: 150 kB of UniRef50."""
MIXED = 64
"""Blocks whose proteins are shuffled together."""
_LEAST_BLOCKS = 1000
"""What a store is cut into if it is small, so that its parts are the shares that were asked for."""


class ProteinStream(IterableDataset[Protein]):
    """Samples of the proteins in some blocks of a store, each once, in an order drawn from torch.

    The protocol is that of the core's loaders: a part of it with `shard`, and resuming exactly where it
    was with `state_dict`. Shards share blocks out, so the memory that one takes does not depend on the
    store's size or on how many there are.
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
        """What this epoch's order follows from; None: it has not begun."""
        self._mix = 0
        """Which of this shard's mixes is being given."""
        self._given = 0
        """Proteins of that."""

    def shard(self, num_shards: int, index: int) -> ProteinStream:
        """One of so many parts, none of which has a block of another."""
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
        """Samples, from where it stands; the order is drawn now, so that it is one for all shards."""
        if self._order is None:
            self._order = int(torch.randint(1 << 62, ()))
        return self._samples(self._order)

    def state_dict(self) -> dict[str, Any]:
        """Where it stands: three numbers."""
        return {"order": self._order, "mix": self._mix, "given": self._given}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from there."""
        self._order, self._mix, self._given = state["order"], state["mix"], state["given"]

    def _samples(self, order: int) -> Iterator[Protein]:
        turns = Permutation(len(self._blocks), derived(ORDER, order))[self._index :: self._num_shards]
        while some := turns[self._mix * self._mixed : (self._mix + 1) * self._mixed]:
            proteins = [
                protein for turn in some for protein in _block(self._store, self._blocks[turn], self._block)
            ]
            for place in Permutation(len(proteins), derived(ORDER, order, self._index, self._mix))[
                self._given :
            ]:
                self._given += 1
                yield sample(proteins[place], self._max_length)
            self._mix, self._given = self._mix + 1, 0
        self._order, self._mix = None, 0


def split_into_blocks(
    store: TokenStore, max_length: int, shares: Sequence[float], seed: int, *, block: int = BLOCK
) -> tuple[ProteinStream, list[Subset[Protein]]]:
    """Disjoint parts of a store, whole blocks each: the first as a stream, the others as sets with a length.

    Raises:
        ConfigError: the shares are negative or add up to more than 1.
    """
    block = max(1, min(block, len(store) // _LEAST_BLOCKS))
    number = -(-len(store) // block)
    first, *others = split(_Numbers(number), shares, seed)
    proteins = Proteins(store, max_length)
    held_out = [Subset(proteins, _InBlocks(other.indices, block, len(store))) for other in others]
    return ProteinStream(store, max_length, first.indices, block=block), held_out


def _block(store: TokenStore, number: int, size: int) -> list[Tokens]:
    return store.run(number * size, min((number + 1) * size, len(store)))


class _Numbers(Dataset[int]):
    """0 … length - 1."""

    def __init__(self, length: int):
        self._length = length

    def __len__(self) -> int:
        return self._length


class _InBlocks(Sequence[int]):
    """The numbers of the proteins in some blocks; a store's last block may be shorter than the others."""

    def __init__(self, blocks: Sequence[int], size: int, total: int):
        last = (total - 1) // size
        self._blocks = blocks
        self._size = size
        self._missing = 0
        """In the store's last block, if that is among these."""
        self._all_before = len(blocks) * size
        """Where what is missing would begin."""
        for place, number in enumerate(blocks):
            if number == last:
                self._missing = (last + 1) * size - total
                self._all_before = (place + 1) * size - self._missing
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
