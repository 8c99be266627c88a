"""Run directories and records, without any scheduler."""

from __future__ import annotations

from pathlib import Path

import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.records import Start, read


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
