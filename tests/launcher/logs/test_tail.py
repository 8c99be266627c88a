"""One file that grows, whatever is done to it meanwhile."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castoff.launcher.logs.tail import Tail, tail_start


def drain(tail: Tail, limit: int = 100) -> bytes:
    data = b""
    while growth := tail.read(limit):
        data += growth
    return data


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "rank-00000.log"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@given(st.binary(max_size=300), st.binary(max_size=300), st.integers(1, 300))
def test_emptied_in_place(before: bytes, after: bytes, read: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        append(path, before)
        tail = Tail(path)
        tail.read(read)
        path.write_bytes(b"")
        assert tail.read(100) == b""
        append(path, after)
        assert drain(tail) == after


class TestTail:
    def test_a_file_that_comes_later(self, log: Path) -> None:
        tail = Tail(log)
        assert tail.read(10) == b"" and tail.trouble is None
        append(log, b"one")
        assert tail.read(10) == b"one"
        assert tail.read(10) == b""

    def test_a_log_that_cannot_be_read_is_reported_and_retried(self, log: Path) -> None:
        tail = Tail(log)
        log.mkdir()
        (log / "x").touch()
        assert tail.read(10) == b"" and tail.trouble == "Is a directory"
        (log / "x").unlink()
        log.rmdir()
        append(log, b"one")
        assert drain(tail) == b"one" and tail.trouble is None

    def test_a_pipe_holds_nobody_up(self, log: Path) -> None:
        os.mkfifo(log)
        assert Tail(log).read(10) == b""

    def test_no_file_stays_open(self, log: Path) -> None:
        append(log, b"one")
        before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        tails = [Tail(log) for _ in range(50)]
        assert {drain(tail) for tail in tails} == {b"one"}
        assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


@given(st.binary(max_size=400), st.integers(0, 12))
def test_the_last_lines(text: bytes, count: int) -> None:
    lines = text.split(b"\n")
    whole = [line + b"\n" for line in lines[:-1]] + [line for line in lines[-1:] if line]
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(text)
        start = tail_start(Path(file.name), count)
    assert text[start:] == b"".join(whole[max(0, len(whole) - count) :])


def test_the_last_lines_of_a_long_file(log: Path) -> None:
    lines = [b"%d " % number + b"x" * (number % 500) + b"\n" for number in range(2000)]
    log.write_bytes(b"".join(lines))
    for count in (1, 500, 1999, 2000, 2001):
        assert log.read_bytes()[tail_start(log, count) :] == b"".join(lines[-count:])
    assert tail_start(log.with_name("none"), 5) == 0
