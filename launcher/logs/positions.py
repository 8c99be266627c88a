"""How far the logs of runs were shown, so that following them continues after a connection has broken.

The follower on a machine writes a mark after its output, with the position of each log that was shown since
the last mark. The laptop shows output only when its mark has arrived, and begins the next connection at the
last positions. Thus no line is lost or shown twice.
"""

from __future__ import annotations

import contextvars
import json
from collections.abc import Callable, Mapping

_ONCE = "once "
"""The beginning of the key of something other than a log."""


class Positions:
    """The positions of logs, in bytes, by the path of each in its run: `RUN/logs/0.0/rank-00000.log`."""

    def __init__(
        self,
        reached: Mapping[str, int] | None = None,
        write: Callable[[bytes], object] | None = None,
        *,
        nonce: str = "",
    ):
        """`reached`: the positions at which the last connection broke. `write`: writes marks; None: there are
        none, since nobody continues.
        """
        self.resumed = bool(reached)
        """Whether logs were shown over an earlier connection."""
        self._reached = dict(reached or {})
        self._new: dict[str, int] = {}
        self._holding: set[str] = set()
        self._write, self._mark = write, position_mark(nonce)

    def reached(self, log: str) -> int | None:
        """The position of a log when the last connection broke; None: it was not shown."""
        return self._reached.get(log)

    def set(self, log: str, position: int) -> None:
        """Note that a log was shown to this position."""
        if self._write is not None and self._reached.get(log) != position:
            self._reached[log] = self._new[log] = position

    def is_first(self, what: str) -> bool:
        """Whether something is shown for the first time that is to be shown once."""
        key = _ONCE + what
        if key in self._reached:
            return False
        self._reached[key] = self._new[key] = 1
        return True

    def hold(self, run: str, *, holds: bool) -> None:
        """Note whether lines of a run are held back that precede others, which were shown: no mark can say
        this.
        """
        (self._holding.add if holds else self._holding.discard)(run)

    def mark(self) -> None:
        """Write a mark, if anything was shown since the last."""
        if self._write is not None and self._new and not self._holding:
            self._write(self._mark + json.dumps(self._new).encode() + b"\n")
            self._new.clear()


def position_mark(nonce: str) -> bytes:
    """The beginning of a mark, which ends with the line."""
    return f"\x1ecastoff-{nonce}-at ".encode()


followed: contextvars.ContextVar[Positions | None] = contextvars.ContextVar("followed", default=None)
"""The positions from which a laptop continues to follow logs; None on the machine itself."""
