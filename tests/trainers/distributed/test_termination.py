"""A rank that lets others speak first ends at once when its launcher says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from tests import patience
from trainers.distributed.termination import noticed, pause

STUCK = """
import ctypes, os, signal, threading
from trainers.distributed.termination import noticed, pause

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
def test_another_signal_ends_no_pause() -> None:
    before = signal.signal(signal.SIGUSR2, lambda *_: None)
    with noticed():
        os.kill(os.getpid(), signal.SIGUSR2)
        thread = threading.Thread(target=pause, args=[patience.SECONDS * 100])
        thread.start()
        thread.join(0.05)
        assert thread.is_alive()
        os.kill(os.getpid(), signal.SIGTERM)
        thread.join()
    signal.signal(signal.SIGUSR2, before)


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
