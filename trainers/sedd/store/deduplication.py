"""Finds repeated hashes on disk, in constant memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy
import numpy.typing

HASH = 16
"""Bytes of a hash. Two of 10^9 hashes are equal by chance with probability 10^-21."""

BUCKET = 1 << 17
"""Number of hashes that are sorted at once, approximately."""

_ENTRY = numpy.dtype([("low", "<u8"), ("high", "<u8"), ("index", "<u8")])

_Entries: TypeAlias = "numpy.typing.NDArray[Any]"


def mark_repeated(
    hashes: Path, marks: Path, *, bucket: int = BUCKET, report: Callable[[int], None] = lambda done: None
) -> int:
    """Write a byte for each hash of a file: 1 if the hash has come before, else 0. Return the number of ones.

    `marks` and a temporary file take 25 bytes of disk for each hash. `report` is called with the number of
    hashes that have been compared.

    Raises:
        OSError: a file cannot be read or written.
    """
    number = hashes.stat().st_size // HASH
    write_zeros(marks, number)
    if not number:
        return 0
    spread = marks.with_name(f"{marks.name}.buckets")
    bits = min(max(number // bucket, 1).bit_length() - 1, 63)
    ends = _spread(hashes, spread, bits, bucket)
    repeated, done = 0, 0
    marked = numpy.memmap(marks, dtype=numpy.uint8, mode="r+")
    with spread.open("rb", buffering=0) as file:
        for end in ends:
            for indices in _repeated(_pieces(file, int(end) - done, bucket)):
                marked[indices] = 1
                repeated += len(indices)
            done = int(end)
            report(done)
    marked.flush()
    spread.unlink()
    return repeated


def write_zeros(path: Path, number: int) -> None:
    """Write a file of `number` zeros, which occupy space on the disk from now on.

    On a full disk, a write fails, but a process that touches a hole in a mapped file is killed.
    """
    zeros = bytes(1 << 20)
    with path.open("wb", buffering=0) as file:
        while number:
            number -= file.write(zeros[:number])


def _spread(hashes: Path, out: Path, bits: int, at_once: int) -> numpy.typing.NDArray[numpy.int64]:
    """Write (hash, index) in buckets by the hash's first `bits` bits, each by rising index; return the
    buckets' ends.
    """
    counts = numpy.zeros(1 << bits, dtype=numpy.int64)
    for entries in _numbered(hashes, at_once):
        counts += numpy.bincount(_bucket_of(entries, bits), minlength=len(counts))
    ends = counts.cumsum()
    positions = ends - counts
    with out.open("wb", buffering=0) as file:
        for entries in _numbered(hashes, at_once):
            buckets = _bucket_of(entries, bits)
            order = numpy.argsort(buckets, kind="stable")
            entries, buckets = entries[order], buckets[order]
            firsts = numpy.flatnonzero(numpy.diff(buckets, prepend=-1))
            for bucket, part in zip(
                buckets[firsts].tolist(), numpy.split(entries, firsts[1:].tolist()), strict=True
            ):
                write_at(file.fileno(), part.tobytes(), int(positions[bucket]) * _ENTRY.itemsize)
                positions[bucket] += len(part)
    return ends


def _numbered(hashes: Path, at_once: int) -> Iterator[_Entries]:
    """Yield the hashes of a file in order, as entries with an index."""
    first = 0
    with hashes.open("rb", buffering=0) as file:
        while True:
            pairs = numpy.fromfile(file, dtype="<u8", count=2 * at_once).reshape(-1, 2)
            if not len(pairs):
                return
            entries = numpy.empty(len(pairs), dtype=_ENTRY)
            entries["low"], entries["high"] = pairs.T
            entries["index"] = numpy.arange(first, first + len(pairs))
            first += len(pairs)
            yield entries


def _bucket_of(entries: _Entries, bits: int) -> numpy.typing.NDArray[numpy.int64]:
    if not bits:
        return numpy.zeros(len(entries), dtype=numpy.int64)
    return (entries["high"] >> numpy.uint64(64 - bits)).astype(numpy.int64)


def _pieces(file: Any, number: int, at_once: int) -> Iterator[_Entries]:
    while number:
        entries = numpy.fromfile(file, dtype=_ENTRY, count=min(number, at_once))
        if not len(entries):
            raise OSError(f"{file.name}: has become shorter than it was")
        number -= len(entries)
        yield entries


def _repeated(pieces: Iterator[_Entries]) -> Iterator[numpy.typing.NDArray[numpy.uint64]]:
    """Yield the indices of a bucket's hashes that have come before; `pieces` come by rising index.

    Each different hash of earlier pieces is kept once, so a hash that fills its bucket takes no memory.
    """
    known = numpy.empty(0, dtype=_ENTRY)
    for piece in pieces:
        entries = numpy.concatenate([known, piece])
        # The sort is stable: of equal hashes, the first one comes first.
        entries = entries[numpy.lexsort((entries["low"], entries["high"]))]
        new = numpy.ones(len(entries), dtype=bool)
        new[1:] = entries["high"][1:] != entries["high"][:-1]
        new[1:] |= entries["low"][1:] != entries["low"][:-1]
        yield entries["index"][~new]
        known = entries[new]


def write_at(descriptor: int, data: bytes, offset: int) -> None:
    """Write all data into a file, from an offset on."""
    while data:
        done = os.pwrite(descriptor, data, offset)
        data, offset = data[done:], offset + done
