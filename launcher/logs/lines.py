"""The lines of logs: which attempt and rank they are of. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

ATTEMPT_BEGINS = re.compile(rb"^(?!\[\d+\] )[^\n]*?castoff: attempt (\d+) begins$", re.MULTILINE)
"""What the script writes into its member's log where one attempt follows another."""

_OF_RANK = re.compile(rb"^\[(\d{1,9})\] ")


class Source(NamedTuple):
    """Whose lines they are; without rank and node, the script's own."""

    member: int
    attempt: int
    rank: int | None = None
    node: int | None = None


def by_attempt(block: bytes, attempt: int) -> Iterator[tuple[int, bytes]]:
    """Whole lines of a member's log by attempt; the first are of `attempt`."""
    begin = 0
    for found in ATTEMPT_BEGINS.finditer(block):
        if found.start() > begin:
            yield attempt, block[begin : found.start()]
        begin, attempt = found.start(), int(found[1])
    if len(block) > begin:
        yield attempt, block[begin:]


def by_rank(block: bytes) -> Iterator[tuple[int | None, bytes]]:
    """Whole lines as castoff's launcher merges them, by rank and without `[rank] `; None: no rank's."""
    for rank, lines in groupby(block.split(b"\n")[:-1], _rank):
        yield rank, b"".join(_OF_RANK.sub(b"", line) + b"\n" for line in lines)


def _rank(line: bytes) -> int | None:
    found = _OF_RANK.match(line)
    return int(found[1]) if found else None
