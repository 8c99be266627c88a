"""Finds repeated hashes on disk, in constant memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy
import numpy.typing

HASH = 16
"""Bytes of a hash. Among 10^9 of 128 bits two are alike by chance once in 10^21 times."""

BUCKET = 1 << 17
"""Hashes that are sorted at once, about."""

_ENTRY = numpy.dtype([("low", "<u8"), ("high", "<u8"), ("index", "<u8")])

_Entries: TypeAlias = "numpy.typing.NDArray[Any]"


def mark_repeated(
    hashes: Path, marks: Path, *, bucket: int = BUCKET, report: Callable[[int], None] = lambda done: None
) -> int:
    """Write a byte for each hash of a file: 1 where it has come before, else 0; how many have.

    Beside `marks` it needs 25 bytes of disk a hash. `tell` hears how many have been compared.

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
            for again in _repeated(_pieces(file, int(end) - done, bucket)):
                marked[again] = 1
                repeated += len(again)
            done = int(end)
            report(done)
    marked.flush()
    spread.unlink()
    return repeated


def write_zeros(path: Path, number: int) -> None:
    """A file of so many zeros that takes its room now.

    Where a disk is full, a write is refused, but a process that touches a hole in a mapped file is killed.
    """
    zeros = bytes(1 << 20)
    with path.open("wb", buffering=0) as file:
        while number:
            number -= file.write(zeros[:number])


def _spread(hashes: Path, out: Path, bits: int, at_once: int) -> numpy.typing.NDArray[numpy.int64]:
    """Write (hash, index), in buckets by the first `bits` bits, each by rising index; the buckets' ends."""
    counts = numpy.zeros(1 << bits, dtype=numpy.int64)
    for entries in _numbered(hashes, at_once):
        counts += numpy.bincount(_bucket_of(entries, bits), minlength=len(counts))
    ends = counts.cumsum()
    places = ends - counts
    with out.open("wb", buffering=0) as file:
        for entries in _numbered(hashes, at_once):
            buckets = _bucket_of(entries, bits)
            order = numpy.argsort(buckets, kind="stable")
            entries, buckets = entries[order], buckets[order]
            firsts = numpy.flatnonzero(numpy.diff(buckets, prepend=-1))
            for which, part in zip(
                buckets[firsts].tolist(), numpy.split(entries, firsts[1:].tolist()), strict=True
            ):
                write_at(file.fileno(), part.tobytes(), int(places[which]) * _ENTRY.itemsize)
                places[which] += len(part)
    return ends


def _numbered(hashes: Path, at_once: int) -> Iterator[_Entries]:
    """The entries of a file of hashes, in order."""
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
    """The indices of a bucket's hashes that have come before; its pieces come by rising index.

    What is kept of the pieces before is each hash once, so that one that fills its bucket takes no memory.
    """
    known = numpy.empty(0, dtype=_ENTRY)
    for piece in pieces:
        entries = numpy.concatenate([known, piece])
        entries = entries[numpy.lexsort((entries["low"], entries["high"]))]  # stable: the first comes first
        new = numpy.ones(len(entries), dtype=bool)
        new[1:] = entries["high"][1:] != entries["high"][:-1]
        new[1:] |= entries["low"][1:] != entries["low"][:-1]
        yield entries["index"][~new]
        known = entries[new]


def write_at(descriptor: int, data: bytes, place: int) -> None:
    """Write all of it into a file, from a place on."""
    while data:
        done = os.pwrite(descriptor, data, place)
        data, place = data[done:], place + done
