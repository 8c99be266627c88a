"""That a launcher has sent TERM, noticed also while the main thread is stuck in a collective.

Python runs a signal's handler in the main thread, once that is back in Python; but the signal's number is
written into a pipe at once.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

_reading: int | None = None
"""The end of the pipe that is read, while there is one."""


@contextmanager
def noticed() -> Iterator[None]:
    """As long as this lasts, `pause` notices TERM; not where another has such a pipe. For the main thread."""
    global _reading
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    if before != -1:  # asyncio's, for one
        signal.set_wakeup_fd(before)
    else:
        _reading = reading
    try:
        yield
    finally:
        if before == -1:
            _reading = None
            signal.set_wakeup_fd(-1)
        os.close(reading)
        os.close(writing)


def pause(seconds: float) -> None:
    """Let seconds pass, but none once TERM has come."""
    if _reading is None:
        time.sleep(seconds)
        return
    until = time.monotonic() + seconds
    poller = select.poll()
    poller.register(_reading, select.POLLIN)
    while (left := until - time.monotonic()) > 0:
        if poller.poll(1000 * left) and signal.SIGTERM in os.read(_reading, 4096):
            return
