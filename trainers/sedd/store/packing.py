"""Closes the gaps that repeated proteins leave, and counts tokens on the way."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import numpy.typing

from castoff.trainers.sedd.alphabet import UNKNOWN
from castoff.trainers.sedd.store.deduplication import write_at
from castoff.trainers.sedd.store.token_store import BIN, OFFSET, Numbers

RUN = 1 << 21
"""Number of tokens that are moved at once; more if a single protein has more."""

_LENGTHS = 1 << 16
"""Number of proteins whose lengths are read at once."""


class Tally:
    """Counts of the packed proteins, for the manifest."""

    def __init__(self) -> None:
        self.sequences = 0
        self.residues = 0
        self.shortest = 0
        self.longest = 0
        self._counts = numpy.zeros(UNKNOWN + 1, dtype=numpy.int64)
        self._bins: Counter[int] = Counter()
        self._of_tokens = hashlib.sha256()
        self._of_lengths = hashlib.sha256()

    def add(self, tokens: bytes, lengths: Numbers) -> None:
        """Add at least one protein to the counts."""
        shortest = int(lengths.min())
        self.shortest = min(self.shortest, shortest) if self.sequences else shortest
        self.longest = max(self.longest, int(lengths.max()))
        self.sequences += len(lengths)
        self.residues += len(tokens)
        for first in range(0, len(tokens), RUN):  # in parts: bincount needs eight bytes per token
            part = numpy.frombuffer(tokens, dtype=numpy.uint8)[first : first + RUN]
            self._counts += numpy.bincount(part, minlength=len(self._counts))
        bins, numbers = numpy.unique(lengths // BIN, return_counts=True)
        self._bins.update(dict(zip(bins.tolist(), numbers.tolist(), strict=True)))
        self._of_tokens.update(tokens)
        self._of_lengths.update(lengths.astype(OFFSET).tobytes())

    @property
    def counts(self) -> list[int]:
        """How often each token occurs, by token."""
        counts: list[int] = self._counts.tolist()
        return counts

    @property
    def lengths(self) -> dict[str, int]:
        """The number of proteins in each bin of lengths, by the shortest length of the bin."""
        return {str(number * BIN): self._bins[number] for number in sorted(self._bins)}

    @property
    def digest(self) -> str:
        """SHA-256 of the lengths and the tokens."""
        return hashlib.sha256(self._of_lengths.digest() + self._of_tokens.digest()).hexdigest()


def pack(
    tokens: Path, lengths: Path, marks: Path, offsets: Path, *, report: Callable[[int], None], run: int = RUN
) -> Tally:
    """Remove the marked proteins from a file of tokens, in place, and write the offsets of the others.

    `lengths` holds an `OFFSET` for each protein, `marks` a byte. `report` is called with the number of
    proteins that are done.

    Raises:
        OSError: a file cannot be read or written.
    """
    tally = Tally()
    source = done = 0
    with tokens.open("r+b", buffering=0) as file, offsets.open("wb") as table:
        table.write(bytes(OFFSET.itemsize))
        for run_lengths, marked in _runs(lengths, marks, run):
            size = int(run_lengths.sum())
            data = _read_at(file, size, source)
            if marked.any():
                stays = numpy.repeat(~marked, run_lengths)
                data = numpy.frombuffer(data, dtype=numpy.uint8)[stays].tobytes()
                run_lengths = run_lengths[~marked]
            if data and (tally.residues, len(data)) != (source, size):
                write_at(file.fileno(), data, tally.residues)
            if data:
                table.write((tally.residues + run_lengths.cumsum()).astype(OFFSET).tobytes())
                tally.add(data, run_lengths)
            source += size
            done += len(marked)
            report(done)
        file.truncate(tally.residues)
        table.flush()
        os.fsync(table.fileno())
        os.fsync(file.fileno())
    return tally


def _runs(
    lengths: Path, marks: Path, run: int
) -> Iterator[tuple[Numbers, numpy.typing.NDArray[numpy.bool_]]]:
    """Yield lengths and marks of consecutive proteins, about `run` tokens at a time."""
    with lengths.open("rb", buffering=0) as file, marks.open("rb", buffering=0) as marks_file:
        while True:
            block = numpy.fromfile(file, dtype=OFFSET, count=_LENGTHS).astype(numpy.int64)
            marked = numpy.fromfile(marks_file, dtype=numpy.uint8, count=len(block)).astype(bool)
            if not len(block):
                return
            ends, first = block.cumsum(), 0
            while first < len(block):
                before = ends[first] - block[first]
                last = max(int(numpy.searchsorted(ends, before + run, side="right")), first + 1)
                yield block[first:last], marked[first:last]
                first = last


def _read_at(file: Any, size: int, offset: int) -> bytes:
    """Read `size` bytes from an offset on, in several reads: the system returns at most 2 GB at once."""
    parts = []
    while size:
        part = os.pread(file.fileno(), size, offset)
        if not part:
            raise OSError(f"{file.name}: has become shorter than it was")
        parts.append(part)
        size, offset = size - len(part), offset + len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
