"""One file that grows, whatever is done to it meanwhile."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.logs.tail import Growth, Tail, tail_start


def drain(tail: Tail, limit: int = 100) -> bytes:
    data = b""
    while growth := tail.read(limit).data:
        data += growth
    return data


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "rank-00000.log"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.binary(max_size=200)),
            st.tuples(st.just("read"), st.integers(1, 150)),
            st.just(("rotate", None)),
            st.just(("move away", None)),
        ),
        max_size=25,
    )
)
def test_every_byte_comes_once_and_in_order(operations: list[tuple[str, bytes | int | None]]) -> None:
    """Also where the file is renamed and another one has its name, whatever was still to be read."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        tail, wrote, got = Tail(path), b"", b""
        for number, (name, what) in enumerate(operations):
            if name == "append" and isinstance(what, bytes):
                append(path, what)
                wrote += what
            elif name == "read" and isinstance(what, int):
                got += tail.read(what).data
            elif path.exists():
                # One that is renamed before it was ever seen cannot be known to have had this name.
                while (growth := tail.read(1)).restarted:
                    got += growth.data
                got += growth.data
                if tail._file != (path.stat().st_dev, path.stat().st_ino):
                    got += drain(tail)
                path.rename(Path(folder) / f"log.{number}")
                if name == "rotate":
                    append(path, b"")
        assert got + drain(tail) == wrote


@given(st.binary(max_size=300), st.binary(max_size=300), st.integers(1, 300))
def test_emptied_in_place(before: bytes, after: bytes, read: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        append(path, before)
        tail = Tail(path)
        tail.read(read)
        path.write_bytes(b"")
        assert tail.read(100) == Growth(b"", restarted=bool(before))
        append(path, after)
        assert drain(tail) == after


class TestTail:
    def test_a_file_that_comes_later(self, log: Path) -> None:
        tail = Tail(log)
        assert tail.read(10) == Growth(b"", restarted=False) and tail.trouble is None
        append(log, b"one")
        assert tail.read(10) == Growth(b"one", restarted=False)
        assert tail.read(10) == Growth()

    def test_renamed_and_replaced_between_two_looks(self, log: Path) -> None:
        tail = Tail(log)
        append(log, b"one")
        assert drain(tail) == b"one"
        append(log, b"two")
        log.rename(log.with_name("kept"))
        append(log, b"three")
        assert tail.read(10) == Growth(b"two", restarted=False)
        assert tail.read(10) == Growth(b"three", restarted=True)

    def test_renamed_and_not_replaced_yet(self, log: Path) -> None:
        tail = Tail(log)
        append(log, b"one")
        assert drain(tail) == b"one"
        kept = log.rename(log.with_name("kept"))
        append(kept, b"two")
        assert drain(tail) == b"two"
        append(kept, b"three")
        append(log, b"four")
        assert drain(tail) == b"threefour"

    def test_deleted_and_made_again(self, log: Path) -> None:
        tail = Tail(log)
        append(log, b"one and more")
        assert drain(tail) == b"one and more"
        log.unlink()
        assert tail.read(10) == Growth() and tail.trouble is None
        append(log, b"another, and longer")
        assert drain(tail) == b"another, and longer"

    @pytest.mark.parametrize("after", [b"new", b"as long ", b"longer than it was before"])
    def test_written_anew_between_two_looks(self, log: Path, after: bytes) -> None:
        """The inode stays, and the size alone does not tell."""
        tail = Tail(log)
        append(log, b"as long.")
        assert drain(tail) == b"as long."
        log.write_bytes(after)
        append(log, b" and on")
        assert tail.read(100) == Growth(after + b" and on", restarted=True)

    def test_a_hole_that_fills_is_no_new_file(self, log: Path) -> None:
        """Network file systems may show a file's new size before its new bytes."""
        tail = Tail(log)
        append(log, b"one\0\0\0")
        assert drain(tail) == b"one\0\0\0"
        log.write_bytes(b"onetwo more")
        assert tail.read(100) == Growth(b" more", restarted=False)

    def test_what_cannot_be_read_is_said_and_tried_again(self, log: Path) -> None:
        tail = Tail(log)
        log.mkdir()
        (log / "x").touch()
        assert tail.read(10) == Growth() and tail.trouble == "Is a directory"
        (log / "x").unlink()
        log.rmdir()
        append(log, b"one")
        assert drain(tail) == b"one" and tail.trouble is None

    def test_a_pipe_holds_nobody_up(self, log: Path) -> None:
        os.mkfifo(log)
        assert Tail(log).read(10) == Growth()

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
