"""Run directories and records, without any scheduler."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.records import Start, read, write_file


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

    def test_bytes_that_are_not_text_are_written_as_they_are(self, tmp_path: Path) -> None:
        write_file(tmp_path / "file", "a\udcffb\r\n")
        assert (tmp_path / "file").read_bytes() == b"a\xffb\r\n"


class TestReadRecord:
    @pytest.mark.parametrize(
        "text", ["", "{", '{"job": 3}', "[]", "null", '{"a": 1}}', "\x00", "[" * 100_000]
    )
    def test_an_incomplete_record_is_not_read(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "record.json").write_text(text)
        assert read(tmp_path / "record.json", Start) is None

    def test_what_is_not_there(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        assert read(tmp_path / "none", Start) is read(tmp_path / "file" / "none", Start) is None

    def test_what_cannot_be_read(self, tmp_path: Path) -> None:
        with pytest.raises(CastoffError, match="cannot be read: Is a directory"):
            read(tmp_path, Start)
