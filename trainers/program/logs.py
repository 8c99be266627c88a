"""Log lines with the rank that they come from."""

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
"""Characters of a value with its name, at most: what is longer between commas is a sentence."""
_NARROW = 80
"""Columns of a terminal that does not say how many it has."""


def setup_logging(rank: int, level: str = "INFO") -> None:
    """`[RANK r] time LEVEL: message` on standard error; other ranks than 0 from WARNING on.

    For a whole program. Where it has set up logging itself, that stays.
    """
    if not logging.getLogger().handlers:
        logging.basicConfig(level=_level(rank, level), handlers=[_OnStandardError(rank)])
    show_trainers(rank, level)


def show_trainers(rank: int, level: str = "INFO") -> None:
    """The same of the trainers' own lines alone, whatever else the program logs, and how.

    A handler of the program's own that writes to the terminal shows them in its own form.
    """
    ours = logging.getLogger("castoff.trainers")
    ours.setLevel(_level(rank, level))
    for handler in ours.handlers[:]:
        if isinstance(handler, _OnStandardError):
            ours.removeHandler(handler)
    if not any(map(_shows, logging.getLogger().handlers)):
        ours.addHandler(_OnStandardError(rank))


def _level(rank: int, level: str) -> int:
    given: int = logging.getLevelName(level)
    return given if rank == 0 else max(given, logging.WARNING)


def _shows(handler: logging.Handler) -> bool:
    """Whether somebody sees what it writes."""
    stream = getattr(handler, "stream", None)
    return stream is not None and stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)


if TYPE_CHECKING:
    _ToStream = logging.StreamHandler[TextIO]
else:
    _ToStream = logging.StreamHandler  # no generic class before Python 3.11


class _OnStandardError(_ToStream):
    """Writes to what is standard error at the time: a bar of progress, for one, takes its place."""

    def __init__(self, rank: int):
        logging.Handler.__init__(self)
        self.setFormatter(_Lines(rank))

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


class _Lines(logging.Formatter):
    """One line for each message, and on a terminal several: the date where it is another one than before, and
    the name of loggers of others.

    What happens is reported in values, which continue on lines of their own; a warning is a whole sentence.
    """

    def __init__(self, rank: int):
        super().__init__(datefmt="%Y-%m-%d %H:%M:%S")
        self._rank = rank
        self._date = ""

    def usesTime(self) -> bool:
        """It does."""
        return True

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Without a traceback, which logging adds."""
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
    """Columns of the terminal; None if a file or a program gets the lines, which are not wrapped then."""
    if sys.stderr is None or not sys.stderr.isatty():
        return None
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or _NARROW
    except (OSError, ValueError):
        return _NARROW


def _wrapped(line: str, columns: int) -> list[str]:
    """A line as several, each but a long word's within the columns: between values where that is enough."""
    wrap = partial(textwrap.wrap, width=columns, break_long_words=False, break_on_hyphens=False)
    if max(map(len, line.split(", ")[1:]), default=columns) > _VALUE:
        return wrap(line, subsequent_indent=_INDENT)
    # textwrap breaks at no other space than ASCII's, and a name stays beside its value.
    joined = wrap(re.sub("(?<!,) ", "\xa0", line), subsequent_indent=_INDENT)
    lines = [one.replace("\xa0", " ") for one in joined]
    fitting = [[one] if len(one) <= columns else wrap(one, subsequent_indent=_INDENT) for one in lines]
    return [one for several in fitting for one in several]


@contextmanager
def in_own_words(say: Callable[[str], str], *loggers: str) -> Iterator[None]:
    """As long as this lasts, lines of these loggers are what `say` makes of them."""
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
        """Every line passes."""
        record.msg, record.args = self._say(record.getMessage()), None
        return True
