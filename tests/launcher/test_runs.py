"""Run directories, records, locks and the index, without any scheduler."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
import stat
import threading
from pathlib import Path

import pytest

from launcher.errors import CastoffError
from launcher.runs import Index, Run, is_locked, locked, new_run, read_record, write_file


def made(folder: Path, name: str = "job") -> Run:
    run = new_run(name, folder)
    run.script.touch()
    return run


class TestWriteFile:
    def test_whole_or_not_at_all(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "file"
        write_file(path, "old")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

        def full(_: int) -> None:
            assert path.read_text() == "old"
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            write_file(path, "new")
        assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("file", "old")]

    def test_a_name_as_long_as_names_can_be(self, tmp_path: Path) -> None:
        write_file(tmp_path / ("x" * 255), "text")
        assert (tmp_path / ("x" * 255)).read_text() == "text"

    def test_new_never_over_another(self, tmp_path: Path) -> None:
        (tmp_path / "old").write_text("old")
        with pytest.raises(FileExistsError):
            write_file(tmp_path / "old", "new", new=True)
        write_file(tmp_path / "new", "new", new=True)
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"old": "old", "new": "new"}

    def test_new_where_there_are_no_links(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)
        write_file(tmp_path / "new", "new", new=True)
        with pytest.raises(FileExistsError):
            write_file(tmp_path / "new", "other", new=True)
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"new": "new"}

    def test_bytes_that_are_no_text(self, tmp_path: Path) -> None:
        write_file(tmp_path / "file", "a\udcffb\r\n")
        assert (tmp_path / "file").read_bytes() == b"a\xffb\r\n"


class TestReadRecord:
    @pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", '{"a": 1}}', "\x00", "[" * 100_000])
    def test_what_is_no_whole_record(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "record.json").write_text(text)
        assert read_record(tmp_path / "record.json") == {}

    def test_what_is_not_there(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        assert read_record(tmp_path / "none") == read_record(tmp_path / "file" / "none") == {}

    def test_what_cannot_be_read(self, tmp_path: Path) -> None:
        with pytest.raises(CastoffError, match="cannot be read: Is a directory"):
            read_record(tmp_path)


class TestLocks:
    def test_held_as_long_as_its_holder_lives(self, tmp_path: Path) -> None:
        path = tmp_path / "lock"
        assert not is_locked(path)
        with locked(path):
            assert is_locked(path)
            with pytest.raises(BlockingIOError), locked(path, patience=0.05):
                pass
        assert not is_locked(path)

    def test_a_look_does_not_disturb(self, tmp_path: Path) -> None:
        """Somebody who looks holds the lock for a moment, too."""
        path = tmp_path / "lock"
        path.touch()
        with path.open() as look:
            fcntl.flock(look, fcntl.LOCK_SH)
            end = threading.Timer(0.1, lambda: fcntl.flock(look, fcntl.LOCK_UN))
            end.start()
            with locked(path):
                assert is_locked(path)
            end.join()


class TestNewRun:
    @pytest.mark.parametrize(
        ("name", "begins"), [("a b/c", "a_b_c-"), ("..", "run-"), ("", "run-"), ("ä" * 99, "_" * 60 + "-")]
    )
    def test_ids_are_plain_words(self, tmp_path: Path, name: str, begins: str) -> None:
        assert new_run(name, tmp_path).id.startswith(begins)

    def test_an_id_that_is_taken(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        numbers = iter([b"\0\0", b"\0\0", b"\0\1"])
        monkeypatch.setattr(os, "urandom", lambda _: next(numbers))
        monkeypatch.setattr("time.strftime", lambda _: "now")
        assert [new_run("x", tmp_path).id for _ in range(2)] == ["x-now-0000", "x-now-0001"]


def add_many(index: Index, folder: Path, first: int) -> None:
    for number in range(first, first + 50):
        run = Run(folder / str(number))
        run.path.mkdir()
        run.script.touch()
        index.add(run, "x" * 500)


class TestIndex:
    def test_parallel_writers(self, tmp_path: Path) -> None:
        index = Index(tmp_path / "state" / "runs.jsonl")
        fork = multiprocessing.get_context("spawn")
        writers = [
            fork.Process(target=add_many, args=(index, tmp_path, first)) for first in range(0, 200, 50)
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert {run.id for run, _ in index.runs()} == {str(number) for number in range(200)}

    def test_a_line_that_was_cut_off_eats_no_other(self, tmp_path: Path) -> None:
        index = Index(tmp_path / "runs.jsonl")
        runs = [made(tmp_path, name) for name in "abc"]
        for run in runs:
            index.add(run, run.id)
            with index.path.open("ab") as file:
                file.write(json.dumps({"path": str(run.path), "name": "half"}).encode()[:-3])
        assert [run.path for run, _ in index.runs()] == [run.path for run in runs]

    @pytest.mark.parametrize("line", ["3", "null", "{}", '{"path": 3, "name": ""}', "\x00", "[", "ÿ"])
    def test_lines_that_are_none(self, tmp_path: Path, line: str) -> None:
        index = Index(tmp_path / "runs.jsonl")
        index.path.write_text(f"{line}\n\n", encoding="latin-1")
        run = made(tmp_path)
        index.add(run, "job")
        assert [run.path for run, _ in index.runs()] == [run.path]

    def test_a_name_means_its_newest_run(self, tmp_path: Path) -> None:
        index = Index(tmp_path / "runs.jsonl")
        old, new = made(tmp_path, "same"), made(tmp_path, "same")
        index.add(old, "same")
        index.add(new, "same")
        assert index.find("same").path == new.path
        assert index.find(old.id).path == old.path
        with pytest.raises(CastoffError, match="2 runs begin so"):
            index.find("sam")

    def test_where_it_is(self, tmp_path: Path) -> None:
        told = {"HOME": "/h", "XDG_STATE_HOME": "/s"}
        assert Index.of(told).path == Path("/s/castoff/runs.jsonl")
        assert Index.of({"HOME": "/h", "XDG_STATE_HOME": ""}).path == Path(
            "/h/.local/state/castoff/runs.jsonl"
        )
