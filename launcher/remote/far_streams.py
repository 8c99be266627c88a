"""Standard streams of a verb that runs here for a caller elsewhere, and its end when they are gone."""

from __future__ import annotations

import contextlib
import io
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection

_PATIENCE = 15.0
"""Seconds for a verb to end by itself after its caller has gone; a submission is then certain."""


class _Stream(io.TextIOWrapper):
    """A text stream that may stand for a terminal elsewhere, and shows commands as they are typed there.

    What is written to its `buffer`, as logs are, stays as it is.
    """

    def __init__(self, descriptor: int, rewrite: Callable[[str], str], *, is_terminal: bool):
        stream = os.fdopen(descriptor, "wb", closefd=False)
        errors = "surrogateescape" if descriptor == 1 else "backslashreplace"
        super().__init__(
            stream, encoding="utf-8", errors=errors, line_buffering=is_terminal or descriptor == 2
        )
        self._rewrite = rewrite
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal or super().isatty()

    def write(self, text: str) -> int:
        super().write(self._rewrite(text))
        return len(text)


def speak(rewrite: Callable[[str], str], terminals: Collection[str] = ()) -> None:
    """Let this process's standard output and error show commands as the caller types them.

    `terminals`: `out`, `err`: which of them are terminals on the caller's side.
    """
    sys.stdout = _Stream(1, rewrite, is_terminal="out" in terminals)
    sys.stderr = _Stream(2, rewrite, is_terminal="err" in terminals)


def end_with_caller(first: signal.Signals = signal.SIGINT) -> None:
    """Have this process interrupted, as by Ctrl-C, once nobody reads its standard output any more.

    Without a terminal, sshd sends no signal when the connection or the caller's ssh ends.
    """
    if not os.isatty(1):
        threading.Thread(target=_watch, args=[first], daemon=True).start()


def _watch(first: signal.Signals) -> None:
    poller = select.poll()
    try:
        poller.register(1, 0)  # POLLERR and POLLHUP are always reported
        while not any(event & (select.POLLERR | select.POLLHUP) for _, event in poller.poll()):
            time.sleep(1)  # POLLNVAL, say
    except (OSError, ValueError):
        return
    for number in (first, signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(OSError):
            os.kill(os.getpid(), number)
        time.sleep(_PATIENCE)
