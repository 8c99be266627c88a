"""Detects TERM from a launcher even while the main thread is stuck in a collective.

Python runs a signal's handler in the main thread, after that has returned to Python; but it writes the
signal's number into a pipe at once. After TERM, waits for other ranks' reports are cut short: a launcher
sends TERM when a rank has failed, and KILL some time later, often 30 s on Slurm.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

LAST_WORDS = 1.0
"""Seconds after TERM in which ranks may still exchange reports."""

_reading: int | None = None
"""The read end of the pipe, while there is one."""

_noticed: float | None = None
"""The time when TERM was noticed in the current or last context of `noticed`."""


@contextmanager
def noticed() -> Iterator[None]:
    """Notice TERM in this context, unless other code uses the wakeup pipe. Only for the main thread."""
    global _reading, _noticed
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    _noticed = None
    if before != -1:  # used by asyncio, for example
        signal.set_wakeup_fd(before)
    else:
        _reading = reading
    try:
        yield
    finally:
        if before == -1:
            has_come()  # remembers TERM for later calls
            _reading = None
            signal.set_wakeup_fd(-1)
        os.close(reading)
        os.close(writing)


def has_come() -> bool:
    """Whether TERM was received."""
    global _noticed
    if _noticed is None and _reading is not None:
        with suppress(BlockingIOError):
            if signal.SIGTERM in os.read(_reading, 4096):
                _noticed = time.monotonic()
    return _noticed is not None


def time_left(seconds: float) -> float:
    """The given seconds, but after TERM at most those left of `LAST_WORDS`."""
    if has_come() and _noticed is not None:
        return min(seconds, _noticed + LAST_WORDS - time.monotonic())
    return seconds


def pause(seconds: float) -> None:
    """Sleep for some seconds, until TERM at most."""
    until = time.monotonic() + seconds
    poller = select.poll()
    if _reading is not None:
        poller.register(_reading, select.POLLIN)
    while not has_come() and (left := until - time.monotonic()) > 0:
        poller.poll(1000 * left)
