"""Log lines with the rank that they come from."""

from __future__ import annotations

import logging
import re
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

_INDENT = "    "
_VALUE = 40
"""Characters of a value with its name, at most: what is longer between commas is a sentence."""
COLUMNS = 76
"""Of a line: a terminal's 80, less the rank that castoff launch puts before it."""


def setup_logging(rank: int, level: str = "INFO") -> None:
    """`[RANK r] time LEVEL: message` on standard error; other ranks than 0 from WARNING on."""
    logging.basicConfig(
        level=level if rank == 0 else max(logging.getLevelName(level), logging.WARNING), force=True
    )
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_Lines(rank))


class _Lines(logging.Formatter):
    """Lines for a terminal: the date where it is another one than before, and the name of loggers of others.

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
        whose = "" if record.name.partition(".")[0] == "trainers" else f" {record.name}"
        text = f"[RANK {self._rank}] {when} {record.levelname}{whose}: {record.message}"
        if record.levelno > logging.INFO or len(text) <= COLUMNS:
            return text
        return "\n".join(line for part in text.split("\n") for line in _wrapped(part))


def _wrapped(line: str) -> list[str]:
    """A line as several, each but a long word's within COLUMNS: between values where that is enough."""
    wrap = partial(textwrap.wrap, width=COLUMNS, break_long_words=False, break_on_hyphens=False)
    if max(map(len, line.split(", ")[1:]), default=COLUMNS) > _VALUE:
        return wrap(line, subsequent_indent=_INDENT)
    # textwrap breaks at no other space than ASCII's, and a name stays beside its value.
    joined = wrap(re.sub("(?<!,) ", "\xa0", line), subsequent_indent=_INDENT)
    lines = [one.replace("\xa0", " ") for one in joined]
    fitting = [[one] if len(one) <= COLUMNS else wrap(one, subsequent_indent=_INDENT) for one in lines]
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
