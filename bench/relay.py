"""Loops that take turns in one process, each in a thread of its own, of which one runs at a time.

So a real `run_training`, which cannot be called a few steps at a time, is timed beside other loops while
the machine is as busy for it as for them.
"""

from __future__ import annotations

import gc
import random
import sys
import threading
from collections.abc import Callable
from typing import TypeAlias

from tests import patience

Turn: TypeAlias = Callable[[], None]
"""What a loop calls before each forward pass: where it stands until it may make some more."""


class Runner:
    """A loop that makes as many forward passes as it is told to, and then stands before the next."""

    def __init__(self, loop: Callable[[Turn], None]):
        self._loop = loop
        self._may_run = threading.Semaphore(0)
        self._stands = threading.Semaphore(0)
        self._left = 0
        self._error: BaseException | None = None
        self._collects = True
        self._thread = threading.Thread(target=self._work, daemon=True)

    def prepare(self) -> None:
        """Let it come to its first forward pass."""
        self._thread.start()
        self._wait()

    def run(self, passes: int) -> None:
        """So many forward passes, from one to the next: all that lies between them is done."""
        self._left = passes
        self._change()

    def finish(self) -> None:
        """The passes that are left, and its end."""
        self.run(sys.maxsize)
        self._thread.join(patience.SECONDS)

    def turn(self) -> None:
        """Stand here until there are passes to make."""
        if self._left == 0:
            drawn = random.getstate()  # the other loops draw from the same ones
            self._stands.release()
            self._may_run.acquire()
            random.setstate(drawn)
        self._left -= 1

    def _change(self) -> None:
        """Python's collector is one for all loops, and one of them may have switched it off for itself."""
        before = gc.isenabled()
        _collect(self._collects)
        self._may_run.release()
        self._wait()
        self._collects = gc.isenabled()
        _collect(before)

    def _wait(self) -> None:
        if not self._stands.acquire(timeout=patience.SECONDS):
            raise TimeoutError("a loop came neither to its next pass nor to its end")
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        try:
            self._loop(self.turn)
        except BaseException as error:  # noqa: BLE001  # whoever waits for the loop raises it
            self._error = error
        finally:
            self._stands.release()


def _collect(collects: bool) -> None:
    if collects:
        gc.enable()
    else:
        gc.disable()
