"""What it takes to pack proteins, and to read 60 million: `python -m bench.packing [MILLIONS]`.

A measurement, not a test; tests/trainers/sedd/store/test_memory.py holds what it shows about memory. The
stores are made up: hashes are random with some repeated, tokens are a file of holes, proteins are random
letters.
"""

from __future__ import annotations

import gzip
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy
import torch

from castoff.trainers.files.durable import checksummed, write_checksummed
from castoff.trainers.sedd.store.building import build
from castoff.trainers.sedd.store.deduplication import HASH, mark_repeated
from castoff.trainers.sedd.store.fasta import Fasta, sequences
from castoff.trainers.sedd.store.packing import pack
from castoff.trainers.sedd.store.token_store import (
    FORMAT,
    MANIFEST,
    OFFSET,
    OFFSETS,
    TOKENS,
    Filters,
    TokenStore,
)

_AT_ONCE = 1 << 18

_LENGTH = 300
"""Residues of a protein on average, about as in UniRef50."""


def anonymous() -> int:
    """Bytes of this process and its children that no file stands behind."""
    me = os.getpid()
    children = Path(f"/proc/{me}/task/{me}/children").read_text().split()
    return sum(_anonymous(pid) for pid in [str(me), *children])


def _anonymous(pid: str) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return 0
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Anonymous:"))


class Taken:
    """What something takes from now on: time, and the most anonymous memory whenever it was looked at."""

    def __init__(self) -> None:
        self._begun, self._worked = time.monotonic(), _worked()
        self._first = anonymous()
        self.bytes = 0

    def look(self, *_: object) -> None:
        """Ask."""
        self.bytes = max(self.bytes, anonymous() - self._first)

    def __str__(self) -> str:
        seconds, worked = time.monotonic() - self._begun, _worked() - self._worked
        return f"{seconds:.1f} s, {worked:.1f} s of a core, {self.bytes / 1e6:.1f} MB of anonymous memory"


def _worked() -> float:
    """Seconds that processors have worked for this process and its children that have ended."""
    return sum(os.times()[:4])


def write_hashes(path: Path, number: int) -> int:
    """Random ones, of which every tenth block repeats the one before in part; how many are repeated."""
    generator = numpy.random.default_rng(0)
    repeated, block = 0, b""
    with path.open("wb") as file:
        for first in range(0, number, _AT_ONCE):
            size = min(_AT_ONCE, number - first)
            again = block[: size * HASH // 3] if first // _AT_ONCE % 10 == 9 else b""
            block = again + generator.bytes(size * HASH - len(again))
            repeated += len(again) // HASH
            file.write(block)
    return repeated


def sparse_store(folder: Path, number: int, length: int = _LENGTH) -> TokenStore:
    """So many proteins, equally long, of alanine alone; its tokens take no room."""
    folder.mkdir()
    with (folder / TOKENS).open("wb") as file:
        file.truncate(number * length)
    with (folder / OFFSETS).open("wb") as file:
        for first in range(0, number + 1, _AT_ONCE):
            last = min(first + _AT_ONCE, number + 1)
            file.write((numpy.arange(first, last) * length).astype(OFFSET).tobytes())
    manifest = {
        **{"format": FORMAT, "sequences": number, "residues": number * length, "digest": "none"},
        **{"counts": [number * length, *[0] * 21], "shortest": length, "longest": length, "lengths": {}},
        **{"origins": [], "filters": {}, "dropped": {}},
    }
    write_checksummed(folder / MANIFEST, checksummed(manifest))
    return TokenStore.open(folder)


def deduplicate(folder: Path, number: int) -> Taken:
    """Find the repeated ones of so many hashes."""
    repeated = write_hashes(folder / "hashes", number)
    taken = Taken()
    found = mark_repeated(folder / "hashes", folder / "marks", report=taken.look)
    assert found == repeated
    return taken


def pack_short(folder: Path, number: int, length: int = 8) -> Taken:
    """Pack so many short proteins, of which those with a mark go."""
    (folder / "marks").touch()
    with (folder / "lengths").open("wb") as lengths, (folder / "marks").open("wb") as marks:
        for first in range(0, number, _AT_ONCE):
            size = min(_AT_ONCE, number - first)
            lengths.write(numpy.full(size, length).astype(OFFSET).tobytes())
            marks.write((numpy.arange(size) % 10 == 9).astype(numpy.uint8).tobytes())
    with (folder / TOKENS).open("wb") as file:
        file.truncate(number * length)
    taken = Taken()
    pack(*(folder / name for name in (TOKENS, "lengths", "marks", OFFSETS)), report=taken.look)
    return taken


def read(store: TokenStore, samples: int, runs: int) -> Taken:
    """Look up random proteins, and read random blocks of 512."""
    generator = numpy.random.default_rng(1)
    places = generator.integers(len(store) - 512, size=max(samples, runs)).tolist()
    taken = Taken()
    for number, place in enumerate(places[:samples]):
        assert not store[place].any()
        if number % 1000 == 0:
            taken.look()
    for number, place in enumerate(places[:runs]):
        assert len(store.run(place, place + 512)) == 512
        if number % 100 == 0:
            taken.look()
    taken.look()
    return taken


def write_proteins(path: Path, number: int) -> None:
    """FASTA as UniRef's, random letters, every hundredth protein again."""
    generator = numpy.random.default_rng(2)
    letters = numpy.frombuffer(b"ACDEFGHIKLMNPQRSTVWY", dtype=numpy.uint8)
    with gzip.open(path, "wb", 1) if path.suffix == ".gz" else path.open("wb") as file:
        for lines in _records(generator, letters, number):
            file.write(lines)


def _records(
    generator: numpy.random.Generator, letters: numpy.typing.NDArray[numpy.uint8], number: int
) -> Iterator[bytes]:
    protein = b""
    for place in range(number):
        if place % 100 != 99:
            protein = letters[generator.integers(20, size=generator.geometric(1 / _LENGTH))].tobytes()
        rows = b"\n".join(protein[first : first + 60] for first in range(0, len(protein), 60))
        yield b">UniRef50_A0A%09d made up n=1 Tax=unknown TaxID=0 RepID=NONE\n%b\n" % (place, rows)


def main(millions: float) -> None:
    """Measure, and say it."""
    number = int(millions * 1_000_000)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for part in (number // 10, number):
            print(f"{part:,} hashes: {deduplicate(folder, part)}", flush=True)
        for part in (number // 10, number):
            print(f"{part:,} proteins packed: {pack_short(folder, part)}", flush=True)
        opening = Taken()
        store = sparse_store(folder / "store", number)
        opening.look()
        print(f"a store of {number:,} written and opened: {opening}", flush=True)
        print(f"  100,000 looked up, 1,000 blocks read: {read(store, 100_000, 1000)}", flush=True)
        for part, suffix in ((100_000, ".fasta"), (1_000_000, ".fasta"), (1_000_000, ".fasta.gz")):
            source = folder / f"proteins-{part}{suffix}"
            write_proteins(source, part)
            for processes in (1, 2):
                print(f"{source.name}, processes {processes}: {_built(source, processes)}", flush=True)
        saved = folder / "proteins-1000000.pt"
        torch.save([letters.decode() for letters in _letters_of(folder / "proteins-1000000.fasta")], saved)
        print(f"{saved.name}, processes 1: {_built(saved, 1)}", flush=True)


def _built(source: Path, processes: int) -> Taken:
    """What a build takes, helpers included."""
    taken, over = Taken(), threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            taken.look()

    watching = threading.Thread(target=watch)
    watching.start()
    build([source], source.with_name("built"), Filters(), processes=processes)
    over.set()
    watching.join()
    return taken


def _letters_of(path: Path) -> Iterator[bytes]:
    with Fasta(path) as fasta:
        for block in fasta.blocks():
            yield from sequences(block)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 60)
