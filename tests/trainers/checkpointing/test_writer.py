"""Work on a thread: in turn, its errors raised once, and done before the program ends."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from castoff.trainers.checkpointing.writer import Writer
from tests import patience


def test_one_after_the_other() -> None:
    done: list[int] = []
    writer = Writer()
    for number in range(20):
        writer.do(partial(done.append, number))
    writer.wait()
    assert done == list(range(20))
    writer.wait()


def test_nothing_waits_for_it() -> None:
    go_on, writer = threading.Event(), Writer()
    writer.do(lambda: assert_set(go_on))
    writer.do(lambda: assert_set(go_on))
    go_on.set()
    writer.wait()


def assert_set(event: threading.Event) -> None:
    assert event.wait(patience.SECONDS)


def test_an_error_is_raised_once_and_what_follows_is_dropped() -> None:
    done: list[int] = []
    writer = Writer()
    writer.do(lambda: done.append(1))
    writer.do(lambda: [][0])
    writer.do(lambda: done.append(2))
    with pytest.raises(IndexError):
        writer.wait()
    writer.wait()
    writer.do(lambda: done.append(3))
    writer.wait()
    assert done == [1, 3]


def test_a_program_that_ends_lets_it_come_to_its_end(tmp_path: Path) -> None:
    """Also with an error, and with no word to the writer."""
    code = """
import atexit, pathlib, sys, threading
from castoff.trainers.checkpointing.writer import Writer
ending = threading.Event()
def work():
    ending.wait()
    pathlib.Path(sys.argv[1]).write_text("whole")
writer = Writer()
writer.do(work)
atexit.register(ending.set)
sys.exit(3)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "file")]
    done = subprocess.run(command, cwd=Path(__file__).parents[3], timeout=patience.SECONDS, check=False)
    assert done.returncode == 3
    assert (tmp_path / "file").read_text() == "whole"
