"""Splits logs into the lines of attempts and ranks. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

_BEGINS = b"castoff: attempt "
ATTEMPT_BEGINS = re.compile(
    rb"^(?!\[\d+\] )[^\n]*?castoff: attempt (?:\d+ failed: [^\n]*; attempt )?(\d+) begins"
    rb"(?: \(restart \d+ of \d+\))?$",
    re.MULTILINE,
)
"""The line that begins every attempt but the first in the log of the member's script."""

_OF_RANK = re.compile(rb"^\[(\d{1,9})\] ")
_BEGINS_LINE = re.compile(rb"\n(?:\[(\d{1,9})\] )?")  # searching for \n is ten times as fast as for ^
_ZERO_PADDED = re.compile(rb"\n\[0\d{1,8}\] ")


class Source(NamedTuple):
    """The writer of a line: a rank or node of a member's attempt, or its script if both are None."""

    member: int
    attempt: int
    rank: int | None = None
    node: int | None = None


def by_attempt(block: bytes, attempt: int) -> Iterator[tuple[int, bytes]]:
    """Split a member's log into attempts; the first lines belong to `attempt`."""
    begin = 0
    # The expression is tried at every line, and nearly all blocks contain no such line.
    for match in ATTEMPT_BEGINS.finditer(block) if _BEGINS in block else ():
        if match.start() > begin:
            yield attempt, block[begin : match.start()]
        begin, attempt = match.start(), int(match[1])
    if len(block) > begin:
        yield attempt, block[begin:]


def by_rank(block: bytes) -> Iterator[tuple[int | None, bytes]]:
    """Split merged lines into blocks of one rank (None: not of a rank), and remove `[rank] `."""
    for rank, lines in groupby(block.split(b"\n")[:-1], _rank):
        yield rank, b"".join(_OF_RANK.sub(b"", line) + b"\n" for line in lines)


def ranks_and_texts(block: bytes) -> tuple[list[bytes | None], list[bytes]]:
    """As `by_rank`, but with one item per line: a list of ranks, as digits, and a list of texts."""
    _, *parts = _BEGINS_LINE.split(b"\n" + block.removesuffix(b"\n"))
    return parts[::2], parts[1::2]


def is_zero_padded(block: bytes) -> bool:
    """Whether a block's rank is zero-padded, as in `[07] `, which castoff's launcher never writes."""
    return bool(_ZERO_PADDED.search(b"\n" + block))


def _rank(line: bytes) -> int | None:
    match = _OF_RANK.match(line)
    return int(match[1]) if match else None
