"""Shows a traceback of several ranks in full once, and only its last line for the others.

Only the merged output is shortened. A rank's own log keeps every line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from castoff.launcher.launchers.local.streams import LINE_PATIENCE, RankLines

_HEADER = b"Traceback (most recent call last):"
_HEADERS = (_HEADER, b"Original " + _HEADER)
"""The first lines of tracebacks: Python's, and that of the traceback which torch quotes if a loader's worker
failed.
"""
_LABEL = re.compile(rb"(?:\[(?P<shown>\d+)\] )?(?:\[rank(?P<of_torch>\d+)\]: )?")
"""The prefix that castoff's launcher and torch.distributed put before each line of a rank."""
_LONGEST = 1000
"""The largest number of lines of an incomplete traceback that are held back."""
_MANY = 1000
"""The number of tracebacks that are remembered: ranks that fail together print theirs close together."""
_ABOVE = b"shown above"


class SeenErrors:
    """The tracebacks that have been shown, each with a text that says where."""

    def __init__(self) -> None:
        self._where: dict[bytes, bytes] = {}

    def first(self, traceback: bytes, where: bytes) -> bytes:
        """Return where a traceback was shown first: `where` if the traceback is new."""
        if len(self._where) >= _MANY:
            del self._where[next(iter(self._where))]
        return self._where.setdefault(traceback, where)

    def forget(self) -> None:
        """Forget which tracebacks were shown."""
        self._where.clear()

    def shown_above(self, lines: Iterable[bytes]) -> bytes:
        """Return lines for the user in which a traceback that was shown before is shortened."""
        shown = ErrorLines(b"", seen=self, where=_ABOVE)
        return shown.feed(_joined(lines), 0.0) + shown.flush()


class ErrorLines(RankLines):
    """`RankLines` that holds a traceback back until it is complete, and shortens a traceback that was shown
    before.
    """

    def __init__(
        self,
        prefix: bytes,
        patience: float = LINE_PATIENCE,
        *,
        terminal: bool = False,
        seen: SeenErrors,
        where: bytes | None = None,
    ):
        """`seen`: the tracebacks that all ranks have shown.

        `where`: a text that says where these lines are shown; None: the prefix of each line names the rank.
        """
        super().__init__(prefix, patience, terminal=terminal)
        self._seen = seen
        self._where = where
        self._held: dict[bytes, list[bytes]] = {}  # by the prefix of their lines
        self._grown = 0.0

    @property
    def holds(self) -> bool:
        """See `RankLines`."""
        return bool(self._held)

    def feed(self, data: bytes, now: float) -> bytes:
        """See `RankLines`."""
        shown = super().feed(data, now)
        if not self._held and _HEADER not in shown:
            return shown
        self._grown = now
        return self._without_seen(shown)

    def due(self) -> float | None:
        """See `RankLines`."""
        due = super().due()
        if not self._held:
            return due
        held = self._grown + self._patience
        return held if due is None else min(due, held)

    def flush(self) -> bytes:
        """See `RankLines`; an incomplete traceback is shown as it is."""
        shown = self._without_seen(super().flush())
        held, self._held = self._held, {}
        return shown + _joined(line for lines in held.values() for line in lines)

    def _without_seen(self, block: bytes) -> bytes:
        """Return the whole lines to show now, without lines that are held back."""
        shown: list[bytes] = []
        for line in block.split(b"\n")[:-1]:
            match = _LABEL.match(line)
            label = match[0] if match else b""
            words = line[len(label) :]
            held = self._held.get(label)
            if words in _HEADERS:
                shown += held or []
                self._held[label] = [line]
            elif held is None:
                shown.append(line)
            elif words.startswith((b" ", b"\t")) and len(held) < _LONGEST:
                held.append(line)
            else:
                del self._held[label]
                shown += self._shortened(label, [*held, line])
        return _joined(shown)

    def _shortened(self, label: bytes, lines: list[bytes]) -> list[bytes]:
        """Return a traceback; if it was shown before, only the line that names the exception."""
        where = self._where or _place(label)
        first = self._seen.first(b"\n".join(line[len(label) :] for line in lines), where)
        if first == where:
            return lines
        return [b"%s (%s)" % (lines[-1], _ABOVE if where == _ABOVE else first)]


def _place(label: bytes) -> bytes:
    match = _LABEL.match(label)
    rank = match and (match["shown"] or match["of_torch"])
    return b"as on rank " + rank if rank else b"as before"


def _joined(lines: Iterable[bytes]) -> bytes:
    return b"".join(line + b"\n" for line in lines)
