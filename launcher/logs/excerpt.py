"""The part of a failed rank's log that tells why: its last traceback, whole, or its last lines. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

LOOK_BACK = 4 * 1024 * 1024
"""Bytes at the end of a log that are worth searching."""

_LAST = 40  # lines that are shown where there is no traceback
_AFTER = (30, 30)  # first and last lines that are shown of what follows the exception's name
_WIDE = 4096  # bytes of a line that are shown

_HEADER = re.compile(
    # torch.distributed puts `[rank3]: ` before each line.
    rb"(?P<who>(?:\[rank\d+\]: )?)"
    rb"(?:(?P<fatal>Fatal Python error: )|(?:  \+ Exception Group )?Traceback \(most recent call last\):)"
)
_CHAINED = (
    b"The above exception was the direct cause of the following exception:",
    b"During handling of the above exception, another exception occurred:",
)
_HARMLESS = (b"Exception ignored in", b"Exception in thread")
"""What stands before the traceback of an exception that ends no process."""

_TORCHRUN = b"ChildFailedError"
"""torchrun's own exception, which only tells that some rank had one."""

_ROOT_CAUSE = re.compile(rb"^Root Cause \(first observed failure\):\n.*?^ *rank +: (\d+)", re.S | re.M)
"""Where torchrun tells which rank that was."""


class _Traceback(NamedTuple):
    """Lines of a log: where a traceback begins, its chain included, and where its exception is named."""

    who: bytes
    begin: int
    name: int


def excerpt(text: bytes, path: str, *, cut: bool = False, rank: int | None = None) -> list[bytes]:
    """The lines to show of a log's end `text`; what is left out is said, with the log's `path`.

    `cut`: whether `text` is not all of the log; `rank`: whose failure it is to tell of, where that is known.
    """
    lines = [_narrow(line) for line in text.split(b"\n")]
    if not lines[-1]:
        lines.pop()
    found = _traceback(lines, text, rank)
    if found is None:
        left = len(lines) - _LAST
        if left > 0 or cut:
            many = f"more than {max(left, 0)}" if cut else f"{left}"
            return [_note(many, path), *lines[-_LAST:]]
        return lines
    told = [line for line in lines[found.begin : found.name + 1] if _is_of(line, found.who)]
    after = [line for line in lines[found.name + 1 :] if _is_of(line, found.who)]
    first, last = _AFTER
    if len(after) > first + last:
        after = [*after[:first], _note(f"{len(after) - first - last}", path), *after[-last:]]
    return told + after


def _traceback(lines: list[bytes], text: bytes, rank: int | None) -> _Traceback | None:
    """The last traceback of an exception that may have ended the rank."""
    found = [one for one in _tracebacks(lines) if _TORCHRUN not in lines[one.name]]
    if rank is None and (causes := _ROOT_CAUSE.findall(text)):
        rank = int(causes[-1])
    if rank is not None:
        who = b"[rank%d]: " % rank
        found = [one for one in found if one.who == who] or found
    return found[-1] if found else None


def _tracebacks(lines: list[bytes]) -> Iterator[_Traceback]:
    """Every traceback with what it was raised from, but for those of harmless exceptions."""
    latest: dict[bytes, _Traceback | None] = {}  # by who writes; None: a harmless one
    for number, line in enumerate(lines):
        header = _HEADER.match(line)
        if header is None:
            continue
        who = header["who"]
        before = _before(lines, number, who)
        chained = before.startswith(_CHAINED)
        cause = latest.get(who)
        if before.startswith(_HARMLESS) or (chained and who in latest and cause is None):
            latest[who] = None
            continue
        begin = cause.begin if chained and cause else number
        name = number if header["fatal"] else _name(lines, number, who)
        latest[who] = _Traceback(who, begin, name)
        yield _Traceback(who, begin, name)


def _before(lines: list[bytes], number: int, who: bytes) -> bytes:
    """The last line of `who` before another that says anything, without `who`."""
    for line in reversed(lines[max(0, number - 20) : number]):
        if line.strip() and line.startswith(who):
            return line[len(who) :]
    return b""


def _name(lines: list[bytes], header: int, who: bytes) -> int:
    """The line that names the exception: the first one that is not set in; else the last of all."""
    for number in range(header + 1, len(lines)):
        line = lines[number]
        if line.strip() and line.startswith(who) and line[len(who) : len(who) + 1] not in (b" ", b"\t"):
            return number
    return len(lines) - 1


def _is_of(line: bytes, who: bytes) -> bool:
    """Whether a line is of the rank that writes `who` before its lines, as far as that can be seen."""
    return line.startswith(who) or not line.strip()


def _narrow(line: bytes) -> bytes:
    """What a terminal would show of a line, but no more than one would like to read."""
    line = line.rstrip(b"\r").rpartition(b"\r")[2]
    return line if len(line) <= _WIDE else line[:_WIDE] + f" … ({len(line)} bytes)".encode()


def _note(many: str, path: str) -> bytes:
    return f"… {many} lines are not shown here: {path}".encode(errors="surrogateescape")
