"""A line that shows a run's progress while a program waits for it, in a notebook or on a terminal."""

from __future__ import annotations

import shutil
import sys
from typing import Any

from castoff.launcher.errors import printable


class ProgressLine:
    """One line that is rewritten each time it changes; empty outside a notebook or a terminal."""

    def __init__(self) -> None:
        self._shell = _ipython()
        self._in_notebook = self._shell is not None and hasattr(self._shell, "kernel")
        self._on_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._shown: Any = None
        self._words = ""

    def show(self, words: str) -> None:
        """Show these words in place of the last ones."""
        words = printable(words)
        if words == self._words:
            return
        if self._in_notebook:
            self._display(words)
        elif self._on_terminal:
            words = words[: shutil.get_terminal_size().columns - 1]  # a line that wraps could not be replaced
            sys.stderr.write(f"\r{words.ljust(len(self._words))}")
            sys.stderr.flush()
        self._words = words

    def end(self) -> None:
        """Leave the line as it is; further output begins on a new line."""
        if self._words and self._on_terminal and not self._in_notebook:
            sys.stderr.write("\n")
            sys.stderr.flush()

    def _display(self, words: str) -> None:
        from importlib import import_module

        data = {"text/plain": words}
        if self._shown is None:
            self._shown = import_module("IPython.display").display(data, raw=True, display_id=True)
        else:
            self._shown.update(data, raw=True)


def watched_by_a_person() -> bool:
    """Whether a person sees the output as it is printed: in a notebook or an IPython."""
    return _ipython() is not None


def _ipython() -> Any:
    """The IPython in which this program runs; None: none. It is never imported for this."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()
