"""Text to tokens: the proteins of a block of FASTA that pass the filters, in one process or several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

import numpy

from castoff.trainers.distributed.parallel_map import mapped
from castoff.trainers.sedd.alphabet import UNKNOWN, encode
from castoff.trainers.sedd.store.deduplication import HASH
from castoff.trainers.sedd.store.fasta import sequences
from castoff.trainers.sedd.store.token_store import OFFSET, Filters

MOST_PROCESSES = 8
"""More processes would be idle: a single one unpacks the text and writes the results."""

_ADVICE = (
    "the system does this if memory runs out, and fewer processes need less: python -m "
    "castoff.trainers.sedd.prepare FILE --out FOLDER --processes 1"
)


class Sifted(NamedTuple):
    """The proteins taken from a block, in its order."""

    tokens: bytes
    lengths: bytes
    """The proteins' lengths, as numbers of type `OFFSET`."""
    hashes: bytes
    """The proteins' hashes, `HASH` bytes each; empty if duplicates are kept."""
    too_short: int
    too_long: int
    unknown: int


def sift(block: bytes, filters: Filters) -> Sifted:
    """Take the proteins of a block of FASTA that pass the filters."""
    proteins = sequences(block)
    lengths = numpy.fromiter(map(len, proteins), numpy.int64, len(proteins))
    short = lengths < filters.min_length
    long = lengths > (filters.max_length or numpy.inf)
    fits = ~(short | long)
    tokens = encode(b"".join([letters for letters, fit in zip(proteins, fits.tolist(), strict=True) if fit]))
    lengths = lengths[fits]
    starts = lengths.cumsum() - lengths
    unknown = numpy.add.reduceat(tokens == UNKNOWN, starts, dtype=numpy.int64) if len(starts) else starts
    known = unknown <= filters.max_unknown * lengths
    if not known.all():
        tokens, lengths = tokens[numpy.repeat(known, lengths)], lengths[known]
    data = tokens.tobytes()
    return Sifted(
        data,
        lengths.astype(OFFSET).tobytes(),
        b"" if filters.keep_duplicates else _hashes(data, lengths.tolist()),
        int(short.sum()),
        int(long.sum()),
        int((~known).sum()),
    )


def _hashes(data: bytes, lengths: list[int]) -> bytes:
    """The hashes of the proteins, one after the other."""
    hashes, first = [], 0
    for length in lengths:
        hashes.append(blake2b(data[first : first + length], digest_size=HASH).digest())
        first += length
    return b"".join(hashes)


def sifted(blocks: Iterable[bytes], filters: Filters, processes: int) -> Iterator[Sifted]:
    """Yield the proteins taken from each block, in order; if `processes` is more than 1, worker processes
    filter the blocks.

    Raises:
        ConfigError: one of these processes died.
    """
    return mapped(partial(sift, filters=filters), blocks, processes, _ADVICE)
