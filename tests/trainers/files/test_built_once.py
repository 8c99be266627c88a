"""A folder that is made once is whole or absent, whoever else makes it and whatever was left before."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from castoff.trainers.files import built_once as module
from castoff.trainers.files.built_once import built_once


def is_whole(folder: Path) -> bool:
    return (folder / "whole").exists()


def write(draft: Path) -> None:
    (draft / "whole").write_text("new")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "made [1]"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.parent.iterdir())


@pytest.fixture
def without_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", refuse)


def test_it_is_written_once(folder: Path) -> None:
    built_once(folder, is_whole, write)
    built_once(folder, is_whole, lambda draft: pytest.fail("written twice"))
    assert is_whole(folder) and names(folder) == [".made [1].lock", "made [1]"]


def test_what_is_not_whole_is_replaced_with_all_that_is_left_of_earlier_tries(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "half").touch()
    folder.with_name(f".{folder.name}.draft-n3-7").mkdir()
    folder.with_name(f".{folder.name}.draft-n3-7.replaced").mkdir()
    built_once(folder, is_whole, write)
    assert is_whole(folder) and names(folder) == [".made [1].lock", "made [1]"]
    assert [path.name for path in folder.iterdir()] == ["whole"]


def test_nothing_is_left_of_a_failure(folder: Path) -> None:
    def fail(draft: Path) -> None:
        write(draft)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        built_once(folder, is_whole, fail)
    assert names(folder) == [".made [1].lock"]


def test_its_files_names_are_on_the_disk_before_it_is_renamed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed = []
    monkeypatch.setattr(module, "flush", lambda path: flushed.append((path, folder.exists())))
    built_once(folder, is_whole, write)
    (draft, before), (parent, after) = flushed
    assert draft.name.startswith(".made [1].draft-") and parent == folder.parent
    assert (before, after) == (False, True)


@pytest.mark.usefixtures("without_locks")
def test_without_locks_others_drafts_stay_and_the_first_whole_folder_counts(folder: Path) -> None:
    other = folder.with_name(f".{folder.name}.draft-n3-7")
    other.mkdir(parents=True)

    def write_later(draft: Path) -> None:
        write(draft)
        folder.mkdir()
        (folder / "whole").write_text("of a faster process")

    built_once(folder, is_whole, write_later)
    assert (folder / "whole").read_text() == "of a faster process"
    assert names(folder) == [other.name, ".made [1].lock", "made [1]"]
