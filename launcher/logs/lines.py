"""The lines of logs: which attempt and rank they are of, and which are a script's own. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

ATTEMPT_BEGINS = re.compile(rb"^(?!\[\d+\] )[^\n]*?castoff: attempt (\d+) begins$", re.MULTILINE)
"""What the script writes into its member's log where one attempt follows another."""

ECHO_PATIENCE = 2.0
"""Seconds that a script's line waits for the same one in the first rank's log."""

_OF_RANK = re.compile(rb"\[(\d{1,9})\] ")
_WAITING = 20_000  # lines that may wait so


class Source(NamedTuple):
    """Whose lines they are; without rank and node, the script's own."""

    member: int
    attempt: int
    rank: int | None = None
    node: int | None = None


def by_attempt(block: bytes, attempt: int) -> Iterator[tuple[int, bytes]]:
    """Whole lines of a member's log by attempt; the first are of `attempt`."""
    if b"castoff: attempt " in block:
        begin = 0
        for found in ATTEMPT_BEGINS.finditer(block):
            if found.start() > begin:
                yield attempt, block[begin : found.start()]
            begin, attempt = found.start(), int(found[1])
        block = block[begin:]
    if block:
        yield attempt, block


def by_rank(block: bytes) -> Iterator[tuple[int | None, bytes]]:
    """Whole lines as castoff's starter merges them, by rank and without `[rank] `; None: no rank's."""
    current: int | None = None
    lines: list[bytes] = []
    for line in block.split(b"\n")[:-1]:
        found = _OF_RANK.match(line)
        rank = int(found[1]) if found else None
        if rank != current and lines:
            yield current, b"\n".join(lines) + b"\n"
            lines.clear()
        current = rank
        lines.append(line[found.end() :] if found else line)
    if lines:
        yield current, b"\n".join(lines) + b"\n"


class Echo:
    """Tells a script's own lines from the first rank's, which `tail -f` copies into the script's log.

    Lines are counted rather than followed in order: one that another has torn costs only itself.
    """

    def __init__(self) -> None:
        self._copies: Counter[bytes] = Counter()
        self._waiting: list[tuple[float, bytes]] = []

    @property
    def waiting(self) -> bool:
        """Whether lines wait for `expect` to know them."""
        return bool(self._waiting)

    def expect(self, lines: bytes) -> None:
        """Whole lines of the first rank's log, which the script's repeats."""
        self._copies.update(lines.split(b"\n")[:-1])
        still = []
        for since, line in self._waiting:
            if not self._known(line):
                still.append((since, line))
        self._waiting = still

    def take(self, lines: bytes, now: float) -> None:
        """Whole lines of the script's log, read at `now` (seconds)."""
        self._waiting += [(now, line) for line in lines.split(b"\n")[:-1] if not self._known(line)]

    def own(self, now: float) -> bytes:
        """Lines that have waited long enough to be the script's own."""
        ready = len(self._waiting) - _WAITING
        for since, _ in islice(self._waiting, max(ready, 0), None):
            if since + ECHO_PATIENCE > now:
                break
            ready = max(ready, 0) + 1
        if ready <= 0:
            return b""
        lines, self._waiting = self._waiting[:ready], self._waiting[ready:]
        return b"".join(line + b"\n" for _, line in lines)

    def end(self) -> bytes:
        """All that still waits."""
        lines, self._waiting = self._waiting, []
        return b"".join(line + b"\n" for _, line in lines)

    def _known(self, line: bytes) -> bool:
        count = self._copies.pop(line, 0)
        if count > 1:
            self._copies[line] = count - 1
        return count > 0
