"""A rank that lets others speak first ends at once when its launcher says so."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading

import pytest

from castoff.trainers.distributed.health_check import RankHealthCheck
from castoff.trainers.distributed.termination import LAST_WORDS, has_come, noticed, pause, time_left
from tests import patience

STUCK = """
import ctypes, os, signal, threading
from castoff.trainers.distributed.termination import noticed, pause

def wait():
    print("waits", flush=True)
    pause(600)
    os._exit(7)

signal.signal(signal.SIGTERM, lambda *_: None)
with noticed():
    threading.Thread(target=wait).start()
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(mutex)
"""
"""The main thread is in a call that no signal ends, as a collective is: Python's handlers wait for it."""


def test_it_ends_though_the_main_thread_is_stuck() -> None:
    with subprocess.Popen([sys.executable, "-c", STUCK], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "waits\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(patience.SECONDS) == 7


@pytest.fixture
def _ignored() -> object:
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.usefixtures("_ignored")
def test_what_came_before_counts() -> None:
    with noticed():
        os.kill(os.getpid(), signal.SIGTERM)
        pause(patience.SECONDS * 100)


@pytest.mark.usefixtures("_ignored")
def test_another_signal_ends_no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    waits, poll = threading.Event(), select.poll

    class Poller:
        """Tells that it waits: by then the other signal was read, and was not TERM."""

        def __init__(self) -> None:
            self.register = (own := poll()).register
            self._poll = own.poll

        def poll(self, milliseconds: float) -> object:
            waits.set()
            return self._poll(milliseconds)

    monkeypatch.setattr(select, "poll", Poller)
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    with noticed():
        os.kill(os.getpid(), signal.SIGUSR2)
        thread = threading.Thread(target=pause, args=[patience.SECONDS * 100])
        thread.start()
        patience.until(lambda: waits.is_set() or not thread.is_alive())
        assert thread.is_alive()
        os.kill(os.getpid(), signal.SIGTERM)
        thread.join()
    signal.signal(signal.SIGUSR2, before)


@pytest.mark.usefixtures("_ignored")
def test_it_is_known_afterwards_and_forgotten_by_the_next() -> None:
    with noticed():
        os.kill(os.getpid(), signal.SIGTERM)
    assert has_come() and time_left(10) <= LAST_WORDS
    pause(patience.SECONDS * 100)
    with noticed():
        assert not has_come() and time_left(10) == 10


class Silent:
    """A store that never answers, as of a rank that is stopped."""

    def set(self, name: str, value: str) -> None:
        """Takes anything."""

    def add(self, name: str, number: int) -> int:
        threading.Event().wait()
        return number


@pytest.mark.usefixtures("_ignored")
def test_nobody_is_waited_for_any_more() -> None:
    """Not for minutes, as a launcher lets pass before it kills a rank."""
    call = RankHealthCheck(Silent(), 1, 2, "here", "rank 0")
    call.window = patience.SECONDS * 100
    with noticed():
        os.kill(os.getpid(), signal.SIGTERM)
        (said,) = call.hold("waits", "in sum").lines
    assert said.startswith("the launcher ended this rank (TERM) before all ranks had answered; rank 1 (here)")


def test_whoever_has_the_pipe_keeps_it() -> None:
    reading, writing = os.pipe2(os.O_NONBLOCK)
    before = signal.set_wakeup_fd(writing)
    try:
        with noticed():
            pause(0.001)
        assert signal.set_wakeup_fd(writing) == writing
    finally:
        signal.set_wakeup_fd(before)
        os.close(reading)
        os.close(writing)
