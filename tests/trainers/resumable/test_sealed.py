"""Checkpoints of other libraries: which is the newest that is whole."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from castoff.trainers.resumable.sealed import newest, seal


def checkpoint(folder: Path, number: int) -> Path:
    made = folder / f"checkpoint-{number}"
    (made / "inner").mkdir(parents=True)
    (made / "weights").write_bytes(b"weights")
    (made / "inner" / "state").write_bytes(b"state")
    return made


def test_the_newest_is_that_with_the_largest_number(tmp_path: Path) -> None:
    assert newest(tmp_path / "missing", r"checkpoint-(\d+)") is None
    for number in (2, 10, 9):
        seal(checkpoint(tmp_path, number))
    (tmp_path / "checkpoint-best").mkdir()
    assert newest(tmp_path, r"checkpoint-(\d+)") == tmp_path / "checkpoint-10"
    seal(tmp_path / "checkpoint-10")  # saved again
    assert newest(tmp_path, r"checkpoint-(\d+)") == tmp_path / "checkpoint-10"


def test_what_is_damaged_is_not_used_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = [checkpoint(tmp_path, number) for number in range(6)]
    for each in made[:5]:
        seal(each)
    (made[4] / "weights").write_bytes(b"w")
    (made[3] / "weights").write_bytes(b"Weights")
    (made[2] / "inner" / "state").unlink()
    (made[1] / "castoff.json").write_text("{}")
    with caplog.at_level(logging.WARNING, "castoff.trainers.resumable"):
        assert newest(tmp_path, r"checkpoint-(\d+)") == made[0]
    reasons = [record.getMessage().partition(" is not used: ")[2] for record in caplog.records]
    assert reasons == [
        "it was not written to the end",
        "weights has 1 bytes instead of 7",
        "weights does not match its checksum",
        "state is missing",
        "ValueError: castoff.json does not match its checksum",
    ]
