"""Detects TERM from a launcher even while the main thread is stuck in a collective.

Python runs a signal's handler in the main thread, once that is back in Python; but the signal's number is
written into a pipe at once. What waits for other ranks to say what is wrong waits no longer after that:
a launcher sends it when a rank has failed, and KILL only after a while, 30 s on many a Slurm.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

LAST_WORDS = 1.0
"""Seconds after TERM in which ranks may still learn of each other what is wrong."""

_reading: int | None = None
"""The end of the pipe that is read, while there is one."""

_noticed: float | None = None
"""When TERM was noticed, since the last `noticed` began."""


@contextmanager
def noticed() -> Iterator[None]:
    """As long as this lasts TERM is noticed; not where another has such a pipe. For the main thread."""
    global _reading, _noticed
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    _noticed = None
    if before != -1:  # asyncio's, for one
        signal.set_wakeup_fd(before)
    else:
        _reading = reading
    try:
        yield
    finally:
        if before == -1:
            has_come()  # which is known from here on, too
            _reading = None
            signal.set_wakeup_fd(-1)
        os.close(reading)
        os.close(writing)


def has_come() -> bool:
    """Whether TERM has."""
    global _noticed
    if _noticed is None and _reading is not None:
        with suppress(BlockingIOError):
            if signal.SIGTERM in os.read(_reading, 4096):
                _noticed = time.monotonic()
    return _noticed is not None


def time_left(seconds: float) -> float:
    """So many, but once TERM has come no more than are left for last words."""
    if has_come() and _noticed is not None:
        return min(seconds, _noticed + LAST_WORDS - time.monotonic())
    return seconds


def pause(seconds: float) -> None:
    """Let seconds pass, but none once TERM has come."""
    until = time.monotonic() + seconds
    poller = select.poll()
    if _reading is not None:
        poller.register(_reading, select.POLLIN)
    while not has_come() and (left := until - time.monotonic()) > 0:
        poller.poll(1000 * left)
