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
"""Tokens that are moved at once, or one protein if that has more."""

_LENGTHS = 1 << 16
"""Proteins whose lengths are read at once."""


class Tally:
    """The facts about the packed proteins that a manifest holds."""

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
        """Count proteins, of which there is at least one."""
        shortest = int(lengths.min())
        self.shortest = min(self.shortest, shortest) if self.sequences else shortest
        self.longest = max(self.longest, int(lengths.max()))
        self.sequences += len(lengths)
        self.residues += len(tokens)
        for first in range(0, len(tokens), RUN):  # each becomes eight bytes on the way
            part = numpy.frombuffer(tokens, dtype=numpy.uint8)[first : first + RUN]
            self._counts += numpy.bincount(part, minlength=len(self._counts))
        bins, numbers = numpy.unique(lengths // BIN, return_counts=True)
        self._bins.update(dict(zip(bins.tolist(), numbers.tolist(), strict=True)))
        self._of_tokens.update(tokens)
        self._of_lengths.update(lengths.astype(OFFSET).tobytes())

    @property
    def counts(self) -> list[int]:
        """How often each token came, by token."""
        counts: list[int] = self._counts.tolist()
        return counts

    @property
    def lengths(self) -> dict[str, int]:
        """Proteins by the shortest length of their bin."""
        return {str(number * BIN): self._bins[number] for number in sorted(self._bins)}

    @property
    def digest(self) -> str:
        """SHA-256 of the lengths and the tokens."""
        return hashlib.sha256(self._of_lengths.digest() + self._of_tokens.digest()).hexdigest()


def pack(
    tokens: Path, lengths: Path, marks: Path, offsets: Path, *, report: Callable[[int], None], run: int = RUN
) -> Tally:
    """Take the proteins with a mark out of the tokens, in their place, and write the offsets of the others.

    `lengths` holds an `OFFSET` for each protein, `marks` a byte; `tell` hears how many have been packed.

    Raises:
        OSError: a file cannot be read or written.
    """
    tally = Tally()
    source = done = 0
    with tokens.open("r+b", buffering=0) as file, offsets.open("wb") as table:
        table.write(bytes(OFFSET.itemsize))
        for several, marked in _runs(lengths, marks, run):
            size = int(several.sum())
            data = _read_at(file, size, source)
            if marked.any():
                stays = numpy.repeat(~marked, several)
                data = numpy.frombuffer(data, dtype=numpy.uint8)[stays].tobytes()
                several = several[~marked]
            if data and (tally.residues, len(data)) != (source, size):
                write_at(file.fileno(), data, tally.residues)
            if data:
                table.write((tally.residues + several.cumsum()).astype(OFFSET).tobytes())
                tally.add(data, several)
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
    """Lengths and marks of consecutive proteins that have about as many tokens as are moved at once."""
    with lengths.open("rb", buffering=0) as file, marks.open("rb", buffering=0) as beside:
        while True:
            some = numpy.fromfile(file, dtype=OFFSET, count=_LENGTHS).astype(numpy.int64)
            marked = numpy.fromfile(beside, dtype=numpy.uint8, count=len(some)).astype(bool)
            if not len(some):
                return
            ends, first = some.cumsum(), 0
            while first < len(some):
                before = ends[first] - some[first]
                last = max(int(numpy.searchsorted(ends, before + run, side="right")), first + 1)
                yield some[first:last], marked[first:last]
                first = last


def _read_at(file: Any, size: int, place: int) -> bytes:
    """All of it: the system gives no more than 2 GB at once."""
    parts = []
    while size:
        part = os.pread(file.fileno(), size, place)
        if not part:
            raise OSError(f"{file.name}: has become shorter than it was")
        parts.append(part)
        size, place = size - len(part), place + len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
