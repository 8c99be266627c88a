"""Files with a checksum of what they hold: what is noticed, and whose error comes out."""

from __future__ import annotations

import errno
import math
import os
import zlib
from pathlib import Path
from typing import IO, Any, cast

import pytest
import torch

from castoff.trainers.files.durable import (
    SummedFile,
    checksummed,
    read_checksummed,
    replace_file,
    replacing,
    sum_of,
    write_checksummed,
)
from tests.trainers.disk_order import recorded_order


def test_what_is_sealed_is_read(tmp_path: Path) -> None:
    content: dict[str, Any] = {"a": [1, {"b": "ü"}], "crc": None, "x": float("inf")}
    write_checksummed(tmp_path / "file", checksummed(content))
    assert read_checksummed(tmp_path / "file") == content
    write_checksummed(tmp_path / "other", checksummed({"x": float("nan")}))
    assert math.isnan(read_checksummed(tmp_path / "other")["x"])


def test_a_replaced_file_is_on_the_disk_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the folder's flush, a node that loses its power may come back with the old one."""
    write_checksummed(tmp_path / "file", checksummed({"a": 1}))
    order = recorded_order(tmp_path, monkeypatch)
    replace_file(tmp_path / "file", checksummed({"a": 2}))
    draft = order[0].removeprefix("flush ")
    assert draft.startswith(".file.")
    assert order == [f"flush {draft}", f"rename {draft} to file", "flush ."]
    assert read_checksummed(tmp_path / "file") == {"a": 2}


def test_a_file_whose_replacement_fails_stays_and_no_draft_is_left(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")

    def fail() -> None:
        with replacing(file) as draft:
            draft.write_text("new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert file.read_text() == "old" and [*tmp_path.iterdir()] == [file]


def test_every_byte_is_sealed(tmp_path: Path) -> None:
    """And every length."""
    data = checksummed({"step": 3, "better": True})
    path = tmp_path / "file"
    damaged = [data[:length] for length in range(len(data))] + [data + b"\n"]
    for place, byte in enumerate(data):
        damaged.append(data[:place] + bytes([byte ^ 1 << place % 8]) + data[place + 1 :])
    for each in damaged:
        path.write_bytes(each)
        with pytest.raises(ValueError, match="file does not match its checksum"):
            read_checksummed(path)


def test_the_sum_of_what_torch_writes(tmp_path: Path) -> None:
    """Of several pieces, each far longer than what is summed at once, and written in several calls."""
    path = tmp_path / "file"
    with SummedFile(path) as file:
        torch.save({"w": torch.randn(700_000), "v": torch.randn(3)}, cast("IO[bytes]", file))
    whole = path.read_bytes()
    assert (file.size, file.crc32) == (len(whole), zlib.crc32(whole))
    assert sum_of(path) == file.crc32


def test_the_systems_own_refusal_comes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.save makes a RuntimeError of it, which tells neither what nor where."""
    write = os.write
    written = []

    def full(descriptor: int, data: bytes) -> int:
        written.append(len(data))
        if len(written) > 3:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        return write(descriptor, data[:40])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="quota") as raised, SummedFile(tmp_path / "file") as file:
        torch.save({"w": torch.randn(100)}, cast("IO[bytes]", file))
    assert raised.value.errno == errno.EDQUOT
    assert raised.value.filename == str(tmp_path / "file")
