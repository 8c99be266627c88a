"""No memory grows with the proteins: not while a store is built, and not while it is read."""

from __future__ import annotations

import tracemalloc
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy
import pytest
import torch

from bench.packing import Taken, deduplicate, pack_short, read, sparse_store
from castoff.trainers.files.durable import checksummed, write_checksummed
from castoff.trainers.sedd.store import building, fasta, packing
from castoff.trainers.sedd.store.building import build
from castoff.trainers.sedd.store.deduplication import HASH, mark_repeated
from castoff.trainers.sedd.store.packing import pack
from castoff.trainers.sedd.store.saved import SavedSequences, _Memo
from castoff.trainers.sedd.store.token_store import (
    FORMAT,
    MANIFEST,
    OFFSET,
    OFFSETS,
    TOKENS,
    Filters,
    TokenStore,
)
from castoff.trainers.sedd.stream import ProteinStream
from tests.trainers.sedd.stores import write_fasta

UNIREF50 = 60_000_000


def peak(work: Callable[[], object]) -> int:
    """Bytes that Python and numpy have taken at most."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few thousand proteins are many pieces of everything that is done in pieces."""
    monkeypatch.setattr(fasta.Fasta.blocks, "__defaults__", (1 << 14,))
    monkeypatch.setattr(packing, "_LENGTHS", 500)
    monkeypatch.setattr(building, "pack", lambda *paths, report: pack(*paths, report=report, run=1 << 14))
    monkeypatch.setattr(
        building, "mark_repeated", lambda *paths, report: mark_repeated(*paths, report=report, bucket=500)
    )


def proteins(number: int) -> list[str]:
    """Every other one again, at once or much later."""
    letters = [
        "ACDEFGHIKL"[n % 10] * 20 + "".join("ACDEFGHIKL"[int(d)] for d in str(n)) for n in range(number)
    ]
    return [letters[(n * 7919) % number // 2] for n in range(number)]


@pytest.mark.usefixtures("small_pieces")
def test_a_store_of_more_proteins_is_built_in_the_same_memory(tmp_path: Path) -> None:
    peaks: list[int] = []
    for number in (2_000, 14_000):
        source = write_fasta(tmp_path / f"{number}.fasta", proteins(number))
        peaks.append(peak(partial(build, [source], tmp_path / "store", Filters(), processes=1)))
    assert peaks[1] < peaks[0] + 100_000, peaks


@pytest.mark.parametrize("dicts", [False, True])
def test_more_saved_proteins_are_read_in_the_same_memory(
    dicts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Memo, "_AT_ONCE", 100)
    peaks: list[int] = []
    for number in (1_100, 4_100):
        texts = proteins(number)
        source = tmp_path / f"{number}.pt"
        torch.save([{"sequence": each, "id": each[-4:]} for each in texts] if dicts else texts, source)
        with SavedSequences(source, tmp_path) as saved:
            peaks.append(peak(partial(deque, saved.blocks(1 << 14), 0)))
    assert peaks[1] < peaks[0] + 50_000, peaks


def test_one_protein_that_comes_again_and_again_takes_no_memory(tmp_path: Path) -> None:
    peaks: list[int] = []
    for number in (1_000, 20_000):
        (tmp_path / "hashes").write_bytes(bytes(HASH * number))
        peaks.append(peak(partial(mark_repeated, tmp_path / "hashes", tmp_path / "marks", bucket=100)))
    assert peaks[1] < peaks[0] + 50_000, peaks


def test_sixty_million_proteins_are_opened_and_read_in_the_same_memory(tmp_path: Path) -> None:
    """Of a file of holes, in which some proteins stand."""
    length, places = 300, numpy.random.default_rng(0).integers(UNIREF50 - 1, size=200).tolist()
    for name, size in ((TOKENS, UNIREF50 * length), (OFFSETS, (UNIREF50 + 1) * OFFSET.itemsize)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(size)
            for place in [*places, UNIREF50 - 1] if name == OFFSETS else []:
                file.seek(place * OFFSET.itemsize)
                file.write((numpy.array([place, place + 1]) * length).astype(OFFSET).tobytes())
    manifest = {
        **{"format": FORMAT, "sequences": UNIREF50, "residues": UNIREF50 * length, "digest": "none"},
        **{"counts": [UNIREF50 * length, *[0] * 21], "shortest": length, "longest": length, "lengths": {}},
        **{"origins": [], "filters": {}, "dropped": {}},
    }
    write_checksummed(tmp_path / MANIFEST, checksummed(manifest))
    taken = Taken()
    store = TokenStore.open(tmp_path)
    assert len(store) == UNIREF50
    for place in places:
        assert len(store[place]) == length and not store[place].any()
    taken.look()
    assert taken.bytes < 8 << 20


@pytest.mark.long
def test_what_grows_with_sixty_million_proteins_is_on_the_disk(tmp_path: Path) -> None:
    for part in ("hashes", "packed"):
        (tmp_path / part).mkdir()
    assert deduplicate(tmp_path / "hashes", UNIREF50).bytes < 64 << 20
    assert pack_short(tmp_path / "packed", UNIREF50).bytes < 64 << 20
    taken = Taken()
    store = sparse_store(tmp_path / "store", UNIREF50)
    taken.look()
    assert taken.bytes < 16 << 20
    assert read(store, 100_000, 1000).bytes < 16 << 20
    taken = Taken()
    stream = ProteinStream(store, 512, range(UNIREF50 // 512))
    for number, _ in enumerate(stream):
        if number % 10_000 == 0:
            taken.look()
        if number == 100_000:
            break
    assert taken.bytes < 64 << 20
