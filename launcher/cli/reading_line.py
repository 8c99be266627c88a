"""A line on the terminal while metrics are read, which may take seconds."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from castoff.launcher.cli.output import is_terminal
from castoff.launcher.history.reading import metrics_bytes, watched
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.text.words import size_words

_SHOWN_AFTER = 1.0
"""Seconds that reading may take in silence."""

_OFTEN = 0.2
"""Seconds between two updates of the line."""


@contextmanager
def reading_line(runs: Sequence[RunDirectory]) -> Iterator[None]:
    """If standard error is a terminal, show there how much has been read of these runs' metrics, once that
    takes more than a second. The line is gone at the end.
    """
    if not is_terminal(sys.stderr):
        yield
        return
    line = _Line(runs)
    try:
        with watched(line.add):
            yield
    finally:
        line.clear()


class _Line:
    def __init__(self, runs: Sequence[RunDirectory]) -> None:
        self._runs = runs
        self._next = time.monotonic() + _SHOWN_AFTER
        """When to show the line, or to update it."""
        self._read = 0
        self._total: int | None = None
        self._shown = ""

    def add(self, count: int) -> None:
        """Count what was read."""
        self._read += count
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _OFTEN
            self._show()

    def _show(self) -> None:
        if self._total is None:
            self._total = sum(map(metrics_bytes, self._runs))
        of = f" of {size_words(self._total)}" if self._read <= self._total else ""  # some are read twice
        words = f"castoff: reading metrics, {size_words(self._read)}{of}"
        words = words[: shutil.get_terminal_size().columns - 1]  # a line that wraps could not be replaced
        sys.stderr.write(f"\r{words.ljust(len(self._shown))}")
        sys.stderr.flush()
        self._shown = words

    def clear(self) -> None:
        """Remove the line."""
        if self._shown:
            sys.stderr.write(f"\r{' ' * len(self._shown)}\r")
            sys.stderr.flush()
