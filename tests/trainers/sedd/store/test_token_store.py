"""A token store gives back what was put in, anywhere; a damaged or foreign one is reported."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.files.durable import checksummed
from castoff.trainers.sedd.alphabet import UNKNOWN, decode
from castoff.trainers.sedd.store.building import build
from castoff.trainers.sedd.store.token_store import Filters, TokenStore
from tests.trainers.sedd.stores import store_with, write_fasta

PROTEINS = ["MKV", "A", "ACDEFGHIKLMNPQRSTVWY", "MKXV"]


def test_gives_back_every_protein(tmp_path: Path) -> None:
    store = store_with(tmp_path, PROTEINS)
    assert len(store) == 4
    assert [decode(store[index]) for index in range(4)] == PROTEINS
    assert [store.length_of(index) for index in range(4)] == [3, 1, 20, 4]
    assert [decode(each) for each in store.run(1, 4)] == PROTEINS[1:]
    assert store[0].dtype == numpy.uint8
    assert store.manifest.counts[:20] == [
        int(n)
        for n in numpy.bincount(
            numpy.concatenate([store[index] for index in range(4)]), minlength=UNKNOWN + 1
        )[:20]
    ]
    assert store.manifest.counts[UNKNOWN] == 1
    assert store.manifest.residues == 28


def test_a_protein_is_a_copy(tmp_path: Path) -> None:
    store = store_with(tmp_path, PROTEINS)
    store[0][:] = 0
    assert decode(store[0]) == "MKV"


@pytest.mark.parametrize("index", [-1, 4])
def test_there_is_nothing_outside(index: int, tmp_path: Path) -> None:
    with pytest.raises(IndexError, match="it has 4"):
        store_with(tmp_path, PROTEINS)[index]


def test_travels_as_a_path(tmp_path: Path) -> None:
    store = store_with(tmp_path, ["MKV" * 5000] * 9)
    sent = pickle.dumps(store)
    assert len(sent) < 1000
    assert decode(pickle.loads(sent)[8]) == "MKV" * 5000


def test_another_store_in_its_place_is_not_taken_for_it(tmp_path: Path) -> None:
    sent = pickle.dumps(store_with(tmp_path, PROTEINS))
    store_with(tmp_path, PROTEINS[1:])
    with pytest.raises(ConfigError, match="rebuilt while it was in use"):
        pickle.loads(sent)


def cut(store: Path) -> None:
    with (store / "tokens").open("r+b") as file:
        file.truncate(5)


def without_offsets(store: Path) -> None:
    (store / "offsets").unlink()


def other_offsets(store: Path) -> None:
    (store / "offsets").write_bytes(bytes(40))


def flipped(store: Path) -> None:
    text = (store / "manifest.json").read_text()
    (store / "manifest.json").write_text(text.replace('"sequences": 4', '"sequences": 3'))


def newer(store: Path) -> None:
    given = json.loads((store / "manifest.json").read_text())
    del given["crc32"]
    (store / "manifest.json").write_bytes(checksummed({**given, "format": 2}))


def emptied(store: Path) -> None:
    shutil.rmtree(store)
    store.mkdir()


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (cut, "has 5 bytes, but 28 were written"),
        (without_offsets, "No such file"),
        (other_offsets, "does not match"),
        (flipped, "does not match its checksum"),
        (newer, "is a token store of format 2, but this castoff reads format 1"),
        (emptied, "holds no token store"),
        (shutil.rmtree, "is not a folder of a token store"),
    ],
)
def test_an_incomplete_store_is_reported(damage: Callable[[Path], None], word: str, tmp_path: Path) -> None:
    store_with(tmp_path, PROTEINS)
    damage(tmp_path / "store")
    with pytest.raises(ConfigError, match=word) as error:
        TokenStore.open(tmp_path / "store")
    assert "castoff.trainers.sedd.prepare" in str(error.value) and str(tmp_path / "store") in str(error.value)


def test_the_digest_is_of_the_proteins_alone(tmp_path: Path) -> None:
    digests = []
    for name, proteins in {"a": PROTEINS, "b": PROTEINS, "c": ["MK", "VA", *PROTEINS[2:]]}.items():
        source = write_fasta(tmp_path / f"{name}.fasta", proteins)
        digests.append(build([source], tmp_path / name, Filters(max_unknown=1), processes=1).digest)
    assert digests[0] == digests[1] != digests[2]
