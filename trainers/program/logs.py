"""Formats log lines with the rank that logs them."""

from __future__ import annotations

import logging
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TextIO

_INDENT = "    "
_VALUE = 40
"""The most characters of a value with its name; longer text between commas is a sentence."""
_NARROW = 80
"""Columns assumed for a terminal of unknown width."""


def setup_logging(rank: int, level: str = "INFO") -> None:
    """Log `[RANK r] time LEVEL: message` to standard error; ranks other than 0 only from WARNING on.

    For a whole program; if it has configured logging, that is kept.
    """
    if not logging.getLogger().handlers:
        logging.basicConfig(level=_level(rank, level), handlers=[_OnStandardError(rank)])
    show_trainers(rank, level)


def show_trainers(rank: int, level: str = "INFO") -> None:
    """Log only the trainers' lines in this way, whatever else the program logs.

    If the program has a handler for the terminal, that shows them in its own format.
    """
    ours = logging.getLogger("castoff.trainers")
    ours.setLevel(_level(rank, level))
    for handler in ours.handlers[:]:
        if isinstance(handler, _OnStandardError):
            ours.removeHandler(handler)
    if not any(map(_shows, logging.getLogger().handlers)):
        ours.addHandler(_OnStandardError(rank))


def _level(rank: int, level: str) -> int:
    number: int = logging.getLevelName(level)
    return number if rank == 0 else max(number, logging.WARNING)


def _shows(handler: logging.Handler) -> bool:
    """Whether a handler writes to standard output or error."""
    stream = getattr(handler, "stream", None)
    return stream is not None and stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)


if TYPE_CHECKING:
    _ToStream = logging.StreamHandler[TextIO]
else:
    _ToStream = logging.StreamHandler  # StreamHandler is not generic before Python 3.11


class _OnStandardError(_ToStream):
    """Writes to the current sys.stderr, which a progress bar, for example, replaces."""

    def __init__(self, rank: int):
        logging.Handler.__init__(self)
        self.setFormatter(_Lines(rank))

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


class _Lines(logging.Formatter):
    """Formats a message as one line, wrapped on a terminal; it shows the date only when it changes, and names
    loggers other than castoff's.

    Only values are wrapped, in lines up to INFO; a warning is a whole sentence.
    """

    def __init__(self, rank: int):
        super().__init__(datefmt="%Y-%m-%d %H:%M:%S")
        self._rank = rank
        self._date = ""

    def usesTime(self) -> bool:
        """Always true."""
        return True

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line without a traceback, which logging appends."""
        date, _, clock = record.asctime.partition(" ")
        when = clock if date == self._date else record.asctime
        self._date = date
        whose = "" if record.name.startswith("castoff.") else f" {record.name}"
        text = f"[RANK {self._rank}] {when} {record.levelname}{whose}: {record.message}"
        columns = _columns()
        if columns is None or record.levelno > logging.INFO or len(text) <= columns:
            return text
        return "\n".join(line for part in text.split("\n") for line in _wrapped(part, columns))


def _columns() -> int | None:
    """Columns of the terminal; None: standard error is a file or a pipe, so lines are not wrapped."""
    if sys.stderr is None or not sys.stderr.isatty():
        return None
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _NARROW
    except (OSError, ValueError):
        return _NARROW


def _wrapped(line: str, columns: int) -> list[str]:
    """Wrap a line to the columns, except long words; between values if that is sufficient."""
    wrap = partial(textwrap.wrap, width=columns, break_long_words=False, break_on_hyphens=False)
    if max(map(len, line.split(", ")[1:]), default=columns) > _VALUE:
        return wrap(line, subsequent_indent=_INDENT)
    # textwrap breaks only at ASCII spaces, so a non-breaking space keeps a name with its value.
    joined = wrap(re.sub("(?<!,) ", "\xa0", line), subsequent_indent=_INDENT)
    lines = [one.replace("\xa0", " ") for one in joined]
    fitting = [[one] if len(one) <= columns else wrap(one, subsequent_indent=_INDENT) for one in lines]
    return [one for several in fitting for one in several]


@contextmanager
def in_own_words(say: Callable[[str], str], *loggers: str) -> Iterator[None]:
    """Translate the lines of these loggers by `say`, in this context."""
    changed = _OwnWords(say)
    for name in loggers:
        logging.getLogger(name).addFilter(changed)
    try:
        yield
    finally:
        for name in loggers:
            logging.getLogger(name).removeFilter(changed)


class _OwnWords(logging.Filter):
    def __init__(self, say: Callable[[str], str]):
        super().__init__()
        self._say = say

    def filter(self, record: logging.LogRecord) -> bool:
        """Translate the line, and let it pass."""
        record.msg, record.args = self._say(record.getMessage()), None
        return True
