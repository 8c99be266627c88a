"""Files that are replaced whole or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from castoff.launcher.process import files


class TestReplace:
    def test_whole_or_not_at_all(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "file"
        files.replace(path, "old")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

        def full(_: int) -> None:
            assert path.read_text() == "old"
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            files.replace(path, "new")
        assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("file", "old")]

    def test_a_name_as_long_as_names_can_be(self, tmp_path: Path) -> None:
        files.replace(tmp_path / ("x" * 255), "text")
        assert (tmp_path / ("x" * 255)).read_text() == "text"

    def test_bytes_that_are_not_text_are_written_as_they_are(self, tmp_path: Path) -> None:
        files.replace(tmp_path / "file", "a\udcffb\r\n")
        assert (tmp_path / "file").read_bytes() == b"a\xffb\r\n"

    def test_a_link_is_replaced_and_not_written_through(self, tmp_path: Path) -> None:
        (tmp_path / "target").write_text("target")
        (tmp_path / "link").symlink_to("target")
        files.replace(tmp_path / "link", "new")
        assert not (tmp_path / "link").is_symlink() and (tmp_path / "target").read_text() == "target"

    def test_what_fails_while_it_is_written_changes_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("old")
        with pytest.raises(UnicodeEncodeError):
            files.replace(tmp_path / "file", "no character: \ud800")
        assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("file", "old")]


def test_a_draft_is_removed_only_if_it_did_not_replace_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed, real = list[str](), Path.unlink

    def unlink(path: Path) -> None:
        removed.append(path.name)
        real(path)

    monkeypatch.setattr(Path, "unlink", unlink)
    files.replace(tmp_path / "record", "text")
    assert removed == []
    with pytest.raises(OSError):
        files.replace(tmp_path, "text")  # a folder
    assert len(removed) == 1 and [path.name for path in tmp_path.iterdir()] == ["record"]
