"""Runs work on a thread, in order; its errors are raised in the calling thread."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable

_PATIENCE = 60.0
"""Seconds that an ending program waits for pending writes; a disk that does not respond must not block it."""


class Writer:
    """Runs functions in order, each on a thread that waits for the one before.

    After an error, later functions are dropped until `wait` has raised it. No lock is held, so a process
    forked meanwhile cannot deadlock.
    """

    def __init__(self) -> None:
        self._last: threading.Thread | None = None
        self._error: BaseException | None = None
        _writers.add(self)

    def do(self, work: Callable[[], None]) -> None:
        """Run `work` after all earlier functions; returns at once."""
        before = self._last

        def in_turn() -> None:
            if before is not None:
                before.join()
            if self._error is None:
                try:
                    work()
                except BaseException as error:  # noqa: BLE001 - `wait` raises it
                    self._error = error

        # A daemon, so that a disk that does not respond cannot keep the program from ending.
        self._last = threading.Thread(target=in_turn, name="checkpoint", daemon=True)
        self._last.start()

    def wait(self) -> None:
        """Wait until all is done; raises the first error, once."""
        if self._last is not None:
            self._last.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def join(self) -> None:
        """Wait for pending work, for `_PATIENCE` at most, and raise no errors."""
        if self._last is not None:
            self._last.join(_PATIENCE)


_writers: weakref.WeakSet[Writer] = weakref.WeakSet()


@atexit.register
def _finish() -> None:
    """Finish writing before Python exits: to stop a thread inside torch.save would abort the process."""
    for writer in list(_writers):
        writer.join()
