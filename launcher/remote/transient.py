"""A line on the terminal that reports what happens now, and that is erased when it is over."""

from __future__ import annotations

import contextlib
import os
import sys
import termios
import threading

from castoff.launcher.errors import printable

_ERASE = "\r\x1b[K"


class Transient:
    """One line on standard error, which each text replaces. If that is not a terminal, nothing is shown."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_shown = False

    @property
    def is_possible(self) -> bool:
        """Whether standard error is a terminal."""
        return sys.stderr is not None and sys.stderr.isatty()

    def show(self, text: str) -> None:
        """Show a text instead of the last one, unless ssh is asking for a password."""
        with self._lock:
            if self.is_possible and not _asks_for_password():
                self._is_shown = True
                self._write(_ERASE + f"castoff: {printable(text)}"[: _columns() - 1])

    def erase(self) -> None:
        """Erase the line."""
        with self._lock:
            if self._is_shown:
                self._is_shown = False
                self._write(_ERASE)

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError):  # the terminal is gone
            sys.stderr.write(text)
            sys.stderr.flush()


def _asks_for_password() -> bool:
    """Whether the terminal echoes nothing, as while ssh asks."""
    try:
        return not termios.tcgetattr(sys.stderr.fileno())[3] & termios.ECHO
    except (OSError, termios.error):
        return False


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except OSError:
        return 80
