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
"""The line that the script writes into its member's log when an attempt follows another, even in the same
job."""

_OF_RANK = re.compile(rb"^\[(\d{1,9})\] ")
_BEGINS_LINE = re.compile(rb"\n(?:\[(\d{1,9})\] )?")  # \n is looked for ten times as fast as ^
_ZERO_PADDED = re.compile(rb"\n\[0\d{1,8}\] ")


class Source(NamedTuple):
    """The writer of a line: member, attempt, node and rank; without rank and node it is the script."""

    member: int
    attempt: int
    rank: int | None = None
    node: int | None = None


def by_attempt(block: bytes, attempt: int) -> Iterator[tuple[int, bytes]]:
    """Split a member's log into attempts; the first lines belong to `attempt`."""
    begin = 0
    # The expression looks at every line, and nearly no block holds such a one.
    for found in ATTEMPT_BEGINS.finditer(block) if _BEGINS in block else ():
        if found.start() > begin:
            yield attempt, block[begin : found.start()]
        begin, attempt = found.start(), int(found[1])
    if len(block) > begin:
        yield attempt, block[begin:]


def by_rank(block: bytes) -> Iterator[tuple[int | None, bytes]]:
    """Split the lines that castoff's launcher merges by rank, and remove `[rank] `; None: the line is no
    rank's."""
    for rank, lines in groupby(block.split(b"\n")[:-1], _rank):
        yield rank, b"".join(_OF_RANK.sub(b"", line) + b"\n" for line in lines)


def ranks_and_texts(block: bytes) -> tuple[list[bytes | None], list[bytes]]:
    """As `by_rank`, but as pairs of rank, in digits, and text, line by line."""
    _, *parts = _BEGINS_LINE.split(b"\n" + block.removesuffix(b"\n"))
    return parts[::2], parts[1::2]


def is_zero_padded(block: bytes) -> bool:
    """Whether a block's rank is zero-padded, as in `[07] `, which castoff's launcher never writes."""
    return bool(_ZERO_PADDED.search(b"\n" + block))


def _rank(line: bytes) -> int | None:
    found = _OF_RANK.match(line)
    return int(found[1]) if found else None
