"""Structures are read once, and what is kept of them is whole, and what their files hold."""

from __future__ import annotations

import errno
import os
import pickle
import resource
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy
import pytest

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.dpo.structures import cache
from castoff.trainers.dpo.structures.cache import Structures, structures_of
from castoff.trainers.dpo.structures.reading import Chain, read_chains
from tests.trainers.dpo.helices import helix, structure, written


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two chains, none, and one with its full sequence."""
    folder = tmp_path / "structures"
    folder.mkdir()
    two = structure(helix("A", "ACDEF" * 3), helix("B", "GHIK" * 3, 15.0))
    return [
        written(two, folder / "two.pdb"),
        written(structure(helix("D", ["DA", "DC", "DG"] * 4)), folder / "none.pdb"),
        written(structure(helix("C", "LMNPQ" * 3), full={"C": "GG" + "LMNPQ" * 3}), folder / "full.cif.gz"),
    ]


def same(found: Chain, wanted: Chain) -> bool:
    mine: tuple[Any, ...] = found
    theirs: tuple[Any, ...] = wanted
    return mine[:2] == theirs[:2] and all(
        bool(numpy.array_equal(each, other)) and each.dtype == other.dtype
        for each, other in zip(mine[2:], theirs[2:], strict=True)
    )


def check(found: Structures, files: list[Path]) -> None:
    assert len(found) == len(files)
    for number, file in enumerate(files):
        wanted = read_chains(file)
        assert len(found.chains(number)) == len(wanted)
        assert all(map(same, found.chains(number), wanted))


def caches(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.structures"))


def test_what_is_kept_is_what_was_read(files: list[Path], tmp_path: Path) -> None:
    found = structures_of(files, tmp_path / "structures")
    check(found, files)
    check(pickle.loads(pickle.dumps(found)), files)
    assert caches(tmp_path) == [found.folder]
    assert [each.name for each in tmp_path.glob(".*")] == [f".{found.folder.name}.lock"]


def test_files_without_any_protein(files: list[Path], tmp_path: Path) -> None:
    assert structures_of([files[1]], tmp_path / "structures").chains(0) == []


def test_files_are_read_once(files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    structures_of(files, tmp_path / "structures")
    monkeypatch.setattr(cache, "chains_of", None)
    check(structures_of(files, tmp_path / "structures"), files)


def test_a_file_that_has_changed_is_read_again(files: list[Path], tmp_path: Path) -> None:
    """Also one of the same size and time; and what is open stays what it was."""
    before = structures_of(files, tmp_path / "structures")
    kept, times = before.chain(0, 0), files[0].stat()
    digest = before.digest(0)
    files[0].write_text(files[0].read_text().replace("GLY", "ALA"))
    os.utime(files[0], ns=(times.st_atime_ns, times.st_mtime_ns))
    after = structures_of(files, tmp_path / "structures")
    check(after, files)
    assert after.digest(0) != digest
    assert after.digest(2) == before.digest(2)
    assert same(before.chain(0, 0), kept)


def test_moved_files_are_the_same(files: list[Path], tmp_path: Path) -> None:
    before = structures_of(files, tmp_path / "structures")
    shutil.copytree(tmp_path / "structures", tmp_path / "elsewhere" / "structures")
    moved = [tmp_path / "elsewhere" / "structures" / file.name for file in files]
    after = structures_of(moved, tmp_path / "elsewhere" / "structures")
    assert after.folder.name == before.folder.name
    assert [after.digest(number) for number in range(3)] == [before.digest(number) for number in range(3)]


@pytest.mark.parametrize("name", ["atoms.npy", "index.json", "native.npy"])
def test_a_damaged_cache_is_made_again(name: str, files: list[Path], tmp_path: Path) -> None:
    found = structures_of(files, tmp_path / "structures")
    content = bytearray((found.folder / name).read_bytes())
    content[-5] ^= 1
    (found.folder / name).write_bytes(content)
    again = structures_of(files, tmp_path / "structures")
    check(again, files)
    assert sorted(each.name for each in again.folder.glob("*")) == sorted(
        [*(f"{field}.npy" for field in Chain._fields[2:]), "index.json"]
    )


def test_other_libraries_read_otherwise(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    structures_of(files, tmp_path / "structures")
    monkeypatch.setattr("importlib.metadata.version", lambda _: "99")
    structures_of(files, tmp_path / "structures")
    assert len(caches(tmp_path)) == 2


def refusing(monkeypatch: pytest.MonkeyPatch, folder: Path, number: int) -> None:
    make = cache._make

    def refused(place: Path, *more: object) -> None:
        if place.parent == folder:
            raise OSError(number, os.strerror(number), str(place))
        make(place, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(cache, "_make", refused)


def test_another_place_where_nothing_can_be_written(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch, tmp_path, errno.EROFS)
    found = structures_of(files, tmp_path / "structures", cache=tmp_path / "runs" / "cache")
    assert found.folder.parent == tmp_path / "runs" / "cache"
    check(found, files)
    with pytest.raises(ConfigError, match=r"next to it, but that failed: .*Read-only file system; copy it"):
        structures_of(files, tmp_path / "structures")


def test_a_full_disk_is_not_taken_for_another_place(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch, tmp_path, errno.ENOSPC)
    with pytest.raises(ConfigError, match=r"structures: No space left on device; make room there"):
        structures_of(files, tmp_path / "structures", cache=tmp_path / "runs")


def test_a_disk_that_fills_up_while_it_is_written(files: list[Path], tmp_path: Path) -> None:
    before, most = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1500, most[1]))
    try:
        with pytest.raises(ConfigError, match=r"next to it, but that failed: .*; make room there"):
            structures_of(files, tmp_path / "structures")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
        signal.signal(signal.SIGXFSZ, before)
    assert not [path for path in tmp_path.iterdir() if path.is_dir() and path.name != "structures"]


def test_wrong_files_are_reported_and_nothing_is_left(files: list[Path], tmp_path: Path) -> None:
    wrong = [tmp_path / "structures" / f"wrong-{number}.pdb" for number in range(8)]
    for file in wrong:
        file.write_text("nothing\n")
    with pytest.raises(ConfigError) as caught:
        structures_of([*files, *wrong], tmp_path / "structures")
    assert [f"{wrong[0]}: is not a structure" in str(caught.value), "wrong-5" in str(caught.value)] == [
        True,
        False,
    ]
    assert "and 3 more of this kind" in str(caught.value)
    assert not caches(tmp_path)
    with pytest.raises(ConfigError, match=r"gone\.pdb: cannot be read: No such file"):
        structures_of([tmp_path / "gone.pdb"], tmp_path / "structures")


def test_a_file_that_changes_while_it_is_read(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_digests", lambda files: ["another"] * len(files))
    with pytest.raises(ConfigError, match=r"two\.pdb: has changed while it was read"):
        structures_of(files, tmp_path / "structures")
    assert not caches(tmp_path)


def test_drafts_of_the_dead_are_removed(files: list[Path], tmp_path: Path) -> None:
    found = structures_of(files, tmp_path / "structures")
    shutil.rmtree(found.folder)
    left = tmp_path / f".{found.folder.name}.draft-somewhere-1"
    left.mkdir()
    structures_of(files, tmp_path / "structures")
    assert not left.exists()


@pytest.mark.usefixtures("for_real")
def test_several_processes_read_the_same(files: list[Path], tmp_path: Path) -> None:
    check(structures_of(files, tmp_path / "structures", processes=2), files)


def test_a_missing_cache_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no saved structures"):
        Structures(tmp_path)
