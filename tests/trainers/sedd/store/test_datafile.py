"""A data file becomes a store once, whoever asks and however many do."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.sedd.alphabet import decode
from castoff.trainers.sedd.store import building
from castoff.trainers.sedd.store.building import build
from castoff.trainers.sedd.store.datafile import store_of
from castoff.trainers.sedd.store.token_store import Filters, Manifest, TokenStore
from tests.mounts import mount_read_only, with_mounts
from tests.trainers.sedd.stores import store_with, write_fasta


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Where something was built."""
    places: list[Path] = []
    really = building._write

    def counted(sources: list[Path], draft: Path, filters: Filters, processes: int) -> Manifest:
        name, _, _ = draft.name.removeprefix(".").partition(".draft-")
        places.append(draft.with_name(name))
        return really(sources, draft, filters, 1)

    monkeypatch.setattr(building, "_write", counted)
    return places


def proteins_of(folder: Path) -> list[str]:
    store = TokenStore.open(folder)
    return [decode(store[index]) for index in range(len(store))]


def test_a_store_is_its_own(tmp_path: Path) -> None:
    assert store_of(store_with(tmp_path, ["ACD"]).folder) == tmp_path / "store"


def test_a_folder_without_a_store_is_reported_with_the_field_that_named_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.test_datafile: is '/.*holds no token store"):
        store_of(tmp_path, field="data.test_datafile")


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"data\.datafile: is ''.* variable that is not set"):
        store_of("")


def test_a_file_that_is_not_there_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA", str(tmp_path))
    with pytest.raises(
        ConfigError, match=r"data\.datafile: is '.DATA/none.fasta', but there is nothing at"
    ) as error:
        store_of("$DATA/none.fasta")
    assert str(tmp_path / "none.fasta") in str(error.value)


def test_a_variable_that_is_not_set_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOWHERE", raising=False)
    with pytest.raises(ConfigError, match=r"data\.datafile: is '.NOWHERE/a', but NOWHERE is not set here"):
        store_of("$NOWHERE/a")


def test_a_file_becomes_a_store_beside_it_once(tmp_path: Path, builds: list[Path]) -> None:
    source = write_fasta(tmp_path / "some.fasta", ["ACD", "MKV"])
    first = store_of(source)
    assert first.parent == tmp_path and first.name.startswith("some.fasta.")
    assert proteins_of(first) == ["ACD", "MKV"]
    assert store_of(str(source)) == first
    assert builds == [first]


@pytest.mark.parametrize("folder", ["~", "$HOME"])
def test_a_file_is_where_a_shell_would_look(
    folder: str, tmp_path: Path, builds: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write_fasta(tmp_path / "some.fasta", ["ACD"])
    assert store_of(f"{folder}/some.fasta").parent == tmp_path


def rewritten(source: Path, store: Path) -> None:
    write_fasta(source, ["ACE", "MKV"])


def grown(source: Path, store: Path) -> None:
    write_fasta(source, ["ACD", "MKV", "G"])
    os.utime(source, ns=(0, TokenStore.open(store).manifest.origins[0].modified))


def damaged(source: Path, store: Path) -> None:
    (store / "tokens").write_bytes(b"")


@pytest.mark.parametrize("change", [rewritten, grown, damaged])
def test_it_is_built_anew_when_it_has_to_be(
    change: Callable[[Path, Path], None], tmp_path: Path, builds: list[Path]
) -> None:
    source = write_fasta(tmp_path / "some.fasta", ["ACD", "MKV"])
    os.utime(source, ns=(0, 0))
    store = store_of(source)
    change(source, store)
    assert store_of(source) == store
    assert builds == [store, store]
    assert proteins_of(store) == [line for line in source.read_text().split() if line[0] != ">"]


@pytest.mark.parametrize("name", ["some.fasta", "some.pt"])
def test_a_file_that_was_only_touched_is_the_same(name: str, tmp_path: Path, builds: list[Path]) -> None:
    source = tmp_path / name
    if name.endswith(".pt"):
        torch.save(["ACD"], source)
    else:
        write_fasta(source, ["ACD"])
    store_of(source)
    os.utime(source, ns=(0, 0))
    store_of(source)
    assert len(builds) == 1


def test_other_filters_make_another_store(tmp_path: Path) -> None:
    source = write_fasta(tmp_path / "some.fasta", ["ACD", "M"])
    assert proteins_of(store_of(source, processes=1)) == ["ACD", "M"]
    assert proteins_of(store_of(source, Filters(min_length=2), processes=1)) == ["ACD"]
    assert proteins_of(store_of(source, processes=1)) == ["ACD", "M"]


def test_where_nothing_can_be_written_a_cache_takes_it(tmp_path: Path) -> None:
    def test() -> None:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            write_fasta(tmp_path / name / "some.fasta", [f"ACD{'M' if name == 'one' else 'K'}"])
            mount_read_only(tmp_path / name)
        with pytest.raises(ConfigError, match=r"cannot be written here .*Read-only") as error:
            store_of(tmp_path / "one" / "some.fasta", processes=1)
        assert f"castoff.trainers.sedd.prepare {tmp_path / 'one' / 'some.fasta'} --out" in str(error.value)
        cache = tmp_path / "deep" / "cache"
        stores = [
            store_of(tmp_path / name / "some.fasta", cache=cache, processes=1)
            for name in ("one", "two", "one")
        ]
        assert [proteins_of(store) for store in stores] == [["ACDM"], ["ACDK"], ["ACDM"]]
        assert {store.parent for store in stores} == {cache}

    with_mounts(tmp_path, test)


def test_a_store_beside_the_file_is_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    def test() -> None:
        source = write_fasta(tmp_path / "data" / "some.fasta", ["ACD"])
        store = store_of(source, processes=1)
        mount_read_only(tmp_path / "data")
        assert store_of(source, cache=tmp_path / "cache") == store

    (tmp_path / "data").mkdir()
    with_mounts(tmp_path, test)


OTHER = """
import sys
from pathlib import Path
from castoff.trainers.sedd.store.building import build
from castoff.trainers.sedd.store.token_store import Filters

waited = []

def wait(place):
    if not waited:
        print("mine", flush=True)
        waited.append(sys.stdin.readline())
    return False

source, place = map(Path, sys.argv[1:])
build([source], place, Filters(), processes=1, is_whole=wait)
"""


@pytest.mark.usefixtures("for_real")
def test_of_two_one_builds_and_the_other_waits(tmp_path: Path, builds: list[Path]) -> None:
    source = write_fasta(tmp_path / "some.fasta", ["ACD"])
    place = store_of(source)
    write_fasta(source, ["ACD", "MKV"])
    words = [sys.executable, "-c", OTHER, str(source), str(place)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None and other.stdout is not None
        assert other.stdout.readline() == "mine\n"
        given: list[str] = []

        class Telling(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                given.append(record.getMessage())
                print(file=other.stdin, flush=True)  # now that this one waits

        logger = logging.getLogger("castoff.trainers.files.locking")
        handler = Telling()
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            assert store_of(source) == place
        finally:
            logger.removeHandler(handler)
            logger.setLevel(logging.NOTSET)
    assert other.returncode == 0
    assert len(given) == 1 and "Waiting for another process" in given[0]
    assert builds == [place]  # the first time
    assert proteins_of(place) == ["ACD", "MKV"]


def test_where_there_are_no_locks_others_drafts_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    source = write_fasta(tmp_path / "some.fasta", ["ACD"])
    (tmp_path / ".store.draft-elsewhere-1").mkdir()
    monkeypatch.setattr(fcntl, "lockf", refusing)
    build([source], tmp_path / "store", Filters(), processes=1)
    assert (tmp_path / ".store.draft-elsewhere-1").exists()
    assert proteins_of(tmp_path / "store") == ["ACD"]


def test_a_pipe_is_refused_as_a_data_file(tmp_path: Path) -> None:
    """Nobody waits for what it may never hold."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match=r"data.datafile: is '.*pipe', a pipe or a device, .* --out FOLDER"):
        store_of(tmp_path / "pipe")
