"""Work on a thread, in order; its errors are raised on the calling thread."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable

_PATIENCE = 60.0
"""Seconds that a program which ends leaves to what is being written. A disk that does not answer may
not hold it for ever."""


class Writer:
    """Does what it is given in turn, each on a thread of its own that waits for the one before.

    After an error, what was given in the meantime is dropped, until `wait` has raised it. No lock is
    held, so a process that is forked in the meantime has nothing to wait for.
    """

    def __init__(self) -> None:
        self._last: threading.Thread | None = None
        self._error: BaseException | None = None
        _writers.add(self)

    def do(self, work: Callable[[], None]) -> None:
        """Begin with it after all that was given before; returns at once."""
        before = self._last

        def in_turn() -> None:
            if before is not None:
                before.join()
            if self._error is None:
                try:
                    work()
                except BaseException as error:  # noqa: BLE001 - `wait` raises it
                    self._error = error

        # A daemon, so that a disk which does not answer keeps no program from ending.
        self._last = threading.Thread(target=in_turn, name="checkpoint", daemon=True)
        self._last.start()

    def wait(self) -> None:
        """Return when all is done; raises the first error, once."""
        if self._last is not None:
            self._last.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def join(self) -> None:
        """Let what is being done come to its end before the program's: in time, and without a word."""
        if self._last is not None:
            self._last.join(_PATIENCE)


_writers: weakref.WeakSet[Writer] = weakref.WeakSet()


@atexit.register
def _finish() -> None:
    """Python's end would stop a thread inside of torch.save, and that aborts the process."""
    for writer in list(_writers):
        writer.join()
