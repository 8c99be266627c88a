"""An append-only file that other writers, full disks and accidents have been at."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import resource
import signal
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.runs import journal
from tests import patience

WHOLE = {"path": "/a", "name": "whole"}


class Line(msgspec.Struct, omit_defaults=True):
    path: str = ""
    name: str = ""
    word: str = ""
    number: int = -1
    filler: str | None = None


LINE = Line(path="/a", name="whole")


def read(path: Path) -> list[object]:
    """The lines that are JSON."""
    found: list[object] = []
    for line in journal.lines(path):
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def append_many(path: Path, word: str) -> None:
    journal._PATIENCE = patience.SECONDS  # in a process of its own
    for number in range(200):
        journal.append(path, [Line(word=word, number=number, filler="x" * (number * 50))] * 2)


def append_limited(path: Path, limit: int) -> None:
    """Append where no file may grow beyond `limit` bytes, as on a disk that fills up; 9 if it says so."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        journal.append(path, [Line(name="x" * 1000)])
    except OSError:
        os._exit(9)


def in_another_process(target: object, *arguments: object) -> int | None:
    process = multiprocessing.get_context("spawn").Process(target=target, args=arguments)  # type: ignore[arg-type]
    process.start()
    process.join()
    return process.exitcode


def test_parallel_writers(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=append_many, args=(path, word)) for word in "abcd"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    reported = [json.loads(line) for line in journal.lines(path)]
    assert len(reported) == 4 * 400
    for word in "abcd":
        assert [one["number"] for one in reported if one["word"] == word] == [n // 2 for n in range(400)]


def test_a_disk_that_fills_up(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal.append(path, [LINE])
    size = path.stat().st_size
    assert in_another_process(append_limited, path, size + 100) == 9
    assert path.stat().st_size == size + 100  # half a line
    assert read(path) == [WHOLE]
    assert in_another_process(append_limited, path, size + 100) == 9  # nothing at all
    journal.append(path, [LINE])
    assert read(path) == [WHOLE, WHOLE]


@pytest.mark.parametrize("left", [0, 1, 5, -1, -2])
def test_a_file_that_was_cut_off(tmp_path: Path, left: int) -> None:
    path = tmp_path / "journal"
    journal.append(path, [LINE, LINE])
    os.truncate(path, left % path.stat().st_size)
    before = len(read(path))
    journal.append(path, [LINE])
    assert read(path) == [WHOLE] * (before + 1)


def test_a_line_that_is_none_of_ours_is_not_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    journal.append(path, [LINE])
    with path.open("ab") as file:
        file.truncate(50_000_000)  # zeros, as a file system may leave them
    assert all(len(line) <= journal._LONGEST_LINE for line in journal.lines(path))
    journal.append(path, [LINE])
    assert read(path) == [WHOLE, WHOLE]


@given(before=st.binary(max_size=200), after=st.binary(max_size=200))
def test_whatever_lies_around_a_line(
    before: bytes, after: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("any") / "journal"
    path.write_bytes(before)
    journal.append(path, [LINE])
    with path.open("ab") as file:
        file.write(after)
    journal.append(path, [LINE])
    assert [one for one in read(path) if one == WHOLE] == [WHOLE, WHOLE]


def test_a_writer_that_was_stopped_holds_nobody_up_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "_PATIENCE", 0.1)
    path = tmp_path / "journal"
    path.touch()
    with path.open("a") as stopped:
        fcntl.flock(stopped, fcntl.LOCK_EX)
        begun = time.monotonic()
        journal.append(path, [LINE])
    assert time.monotonic() - begun >= 0.1 and read(path) == [WHOLE]


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    journal.append(tmp_path / "journal", [LINE])
    assert read(tmp_path / "journal") == [WHOLE]


def test_a_path_that_is_not_a_plain_file_has_no_lines(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    for name in ("folder", "pipe", "device"):
        with pytest.raises(OSError):
            journal.append(tmp_path / name, [LINE])
        with pytest.raises(OSError):
            list(journal.lines(tmp_path / name))
    assert list(journal.lines(tmp_path / "none")) == []
    assert list(journal.lines(tmp_path / "file" / "below")) == []


def test_nothing_is_made_for_nothing(tmp_path: Path) -> None:
    journal.append(tmp_path / "folder" / "journal", [])
    assert list(tmp_path.iterdir()) == []
