"""Log lines that say which rank they come from."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def setup_logging(rank: int, level: str = "INFO") -> None:
    """`[RANK r] time LEVEL name: message` on standard error; other ranks than 0 from WARNING on."""
    logging.basicConfig(
        level=level if rank == 0 else max(logging.getLevelName(level), logging.WARNING),
        format=f"[RANK {rank}] %(asctime)s %(levelname)s %(name)s: %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
        force=True,
    )


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
