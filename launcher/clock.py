"""The clock that castoff waits by. Tests replace `now` and `sleep`, so that they race no constant."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")


def now() -> float:
    """Seconds since some moment in the past; they never decrease."""
    return time.monotonic()


def spent() -> float:
    """Seconds of CPU time that this process has taken."""
    return time.process_time()


def sleep(seconds: float) -> None:
    """Wait this many seconds."""
    time.sleep(seconds)


def until(look: Callable[[], Found], pause: float, patience: float) -> Found:
    """Look every `pause` seconds until the answer is true, or `patience` seconds have passed; return the
    last answer.

    There is always one look after the last pause.
    """
    give_up = now() + patience
    while not (found := look()) and now() < give_up:
        sleep(pause)
    return found
