"""The lock of a folder that one process makes: who waits for it, for how long, and what is said of that."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from castoff.launcher.process.locks import try_lock
from castoff.trainers.files import lock_file, locking
from castoff.trainers.files.lock_file import Holder
from castoff.trainers.files.locking import locked
from tests.patience import until

HOLDER = """
import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.lockf(file, fcntl.LOCK_EX)
os.write(file, sys.argv[2].encode())
print("mine", flush=True)
sys.stdin.readline()
"""
"""Gives no sign of life: it is as if its host were lost, and the file server kept its lock."""


def read_holder(lock: Path) -> Holder:
    """As another process reads it: closing the file would let go of a lock of this one."""
    program = "import sys; print(open(sys.argv[1]).read())"
    words = [sys.executable, "-S", "-c", program, str(lock)]
    return msgspec.json.decode(subprocess.check_output(words), type=Holder)


class Clock:
    """Time passes as this process sleeps, and something may happen meanwhile."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.meanwhile: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Clock:
    caplog.set_level(logging.INFO, "castoff.trainers.files.locking")
    clock = Clock()
    monkeypatch.setattr(locking, "time", clock)
    return clock


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "graphs"


@pytest.fixture
def lock(folder: Path) -> Path:
    return folder.with_name(".graphs.lock")


@contextmanager
def held(lock: Path, name: str = '{"pid": 7, "host": "n3"}') -> Iterator[subprocess.Popen[str]]:
    """By another process, until this ends or that is ended."""
    words = [sys.executable, "-S", "-c", HOLDER, str(lock), name]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None and other.stdout.readline() == "mine\n"
            yield other
        finally:
            other.kill()


def is_taken(lock: Path) -> bool:
    """Whether another process cannot have the lock."""
    program = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    words = [sys.executable, "-S", "-c", program, str(lock)]
    tried = subprocess.run(words, stderr=subprocess.PIPE, text=True, check=False)
    assert ("BlockingIOError" in tried.stderr) == bool(tried.returncode), tried.stderr
    return bool(tried.returncode)


def test_one_that_gives_no_sign_of_life_is_replaced(
    folder: Path, lock: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with held(lock) as other:
        with locked(folder) as alone:
            assert not alone and other.poll() is None
            assert locking.SILENCE <= clock.now - 1000 < locking.SILENCE + 5
            assert is_taken(lock)
        with locked(folder) as alone:
            assert alone
    waits, takes = caplog.messages
    assert f"process 7 on n3 holds {lock}. If it is gone, delete that file; after 300 s" in waits
    assert f"process 7 on n3 holds {lock} and has shown no sign of life for 301 s" in takes
    assert [*folder.parent.iterdir()] == [lock]


def test_one_that_lives_is_waited_for(
    folder: Path, lock: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """For longer than one without a sign of life; a line now and then shows that it is not hanging."""
    with held(lock) as other:

        def touch() -> None:
            os.utime(lock, ns=(0, int(clock.now)))
            if clock.now > 1000 + 3 * locking.SILENCE:
                other.kill()
                other.wait()

        clock.meanwhile = touch
        with locked(folder) as alone:
            assert alone
    first, *others = caplog.messages
    assert first.startswith("Waiting for another process: process 7 on n3 holds ")
    assert others and {*others} == {f"Still waiting: process 7 on n3, which is alive, holds {lock}"}


def test_a_file_that_is_deleted_holds_nobody_up(folder: Path, lock: Path, clock: Clock) -> None:
    with held(lock) as other:
        clock.meanwhile = lock.unlink
        with locked(folder) as alone:
            assert alone and other.poll() is None
            assert clock.now == 1000.05 and lock.exists()


def test_the_lock_of_a_file_that_was_deleted_meanwhile_counts_for_nothing(
    folder: Path, lock: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []

    def deleted_first(descriptor: int, **how: bool) -> bool:
        tries.append(descriptor)
        if len(tries) == 1:
            lock.unlink()
        return try_lock(descriptor, **how)

    monkeypatch.setattr(lock_file, "try_lock", deleted_first)
    with locked(folder) as alone:
        assert alone and len(tries) == 2 and is_taken(lock)


def test_what_others_wrote_is_shown_as_one_line_of_text(
    folder: Path, lock: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with held(lock, r'{"pid": 7, "host": "\u001b[31mred\nsecond"}'), locked(folder):
        assert caplog.messages[0].startswith("Waiting for another process: process 7 on [31mredsecond holds ")


def test_a_holder_that_has_not_named_itself(
    folder: Path, lock: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    with held(lock, "anything"), locked(folder):
        assert "Waiting for another process: an unnamed process holds " in caplog.messages[0]


def test_a_holder_names_itself_and_shows_that_it_lives(
    folder: Path, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locking, "BEAT", 0.01)
    monkeypatch.setenv("CASTOFF_RUN_DIR", "/scratch/castoff-runs/train-1")
    lock.write_text("the process before, whose name was far longer than this one's" * 3)
    with locked(folder):
        assert str(read_holder(lock)) == f"process {os.getpid()} on {os.uname().nodename} of run train-1"
        for _ in range(2):
            os.utime(lock, (0, 0))
            until(lambda: lock.stat().st_mtime > 0, "a sign of life")
    os.utime(lock, (0, 0))
    assert "castoff-lock" not in {thread.name for thread in threading.enumerate()}
    assert lock.stat().st_mtime == 0


def test_it_is_let_go_of(folder: Path, lock: Path) -> None:
    def fail() -> None:
        with locked(folder):
            assert is_taken(lock)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not is_taken(lock)
