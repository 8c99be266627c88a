"""Telling the user that a machine has not answered yet, while castoff waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from castoff.launcher.errors import report
from castoff.launcher.text.words import brief

_FIRST, _LONGEST = 15.0, 300.0
"""Seconds until the first time that it is said, and at the most between two."""


@contextmanager
def telling_of_silence(name: str) -> Iterator[Callable[[], object]]:
    """Say on standard error that a machine is silent, until this ends or what it gives is called."""
    heard, began = threading.Event(), time.monotonic()

    def watch() -> None:
        pause = _FIRST
        while not heard.wait(pause):
            report(f"{name}: no answer yet after {brief(time.monotonic() - began)}; Ctrl-C ends the wait")
            pause = min(2 * pause, _LONGEST)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield heard.set
    finally:
        heard.set()
        watcher.join()
