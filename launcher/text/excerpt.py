"""The lines of a log that show why a process failed: its last traceback, or its last lines; and the one line
that names the cause. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_LAST = 40  # lines shown without a traceback
_AFTER = (30, 30)  # first and last lines shown after the exception's name
_WIDE = 4096  # bytes shown of a line
_LAST_ERRORS = 3  # last lines among which one may name the cause

_ERROR = re.compile(
    r"(?:\b|(?<=[a-z]))error\b(?!\s*[=:]?\s*[-+.\d])|exception|\bfatal|\bfail(?:ed|s\b|u)|\babort"
    r"|\bpanic|\bassert|\binvalid|\bmissing|denied|refused|unrecogni[sz]ed|unsupported|undefined|no such"
    r"|not found|not installed|not exist|\bcannot\b|\bcan't\b|\bcould not|\bcouldn't|\bunable to"
    r"|segmentation fault|out of memory|no space left",
    re.I,
)
"""Matches a line that reads like an error, and no line of progress."""
_EXIT = re.compile(r"^srun: .*(?:xited with|task|Terminating|Force|Job step)|STEP .* CANCELLED|^make: \*\*\*")
"""Matches a line which only reports that another program has failed, and not why."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_OF_GROUP = b"  | "
"""Beginning of the lines of an exception group's traceback, except those indented further."""

_WHO = re.compile(rb"(?:\[rank\d+\]: )?")
"""The prefix that torch.distributed puts before each line of a traceback."""

_HEADER = re.compile(
    rb"(?P<fatal>Fatal Python error: )|(?:  \+ Exception Group )?Traceback \(most recent call last\):"
)
_BEGINS = (b"Traceback (most recent call last):", b"Fatal Python error: ")
_TAIL = 2048
"""The last bytes of a log without a traceback in which an error may be."""
_CHAINED = (
    b"The above exception was the direct cause of the following exception:",
    b"During handling of the above exception, another exception occurred:",
)
_HARMLESS = (b"Exception ignored in", b"Exception in thread")
"""Beginnings of the line before the traceback of an exception that does not end its process."""

_TORCHRUN = b"ChildFailedError"
"""torchrun's own exception, which reports only that some rank failed."""

_TORCHRUN_SAYS = re.compile(rb"torch[./]distributed[./]elastic[./]multiprocessing[./]api\b")
"""Text in the lines in which torchrun reports that a rank failed and that it ends the others."""
_RANK_FAILED = b"failed (exitcode"

_ROOT_CAUSE = re.compile(rb"^Root Cause \(first observed failure\):\n.*?^ *rank +: (\d+)", re.S | re.M)
"""The line in which torchrun names the rank that failed first."""


def excerpt(text: bytes, path: str, *, cut: bool = False, rank: int | None = None) -> list[bytes]:
    """The lines to show of `text`, the end of a log; a first line counts the lines left out and gives the
    log's `path`. `cut`: whether `text` is not the whole log. `rank`: the rank whose failure to show, if
    known.
    """
    lines = _lines(text)
    found = _traceback(lines, text, rank)
    if found is None:
        lines = _before_torchrun(lines)
        left = len(lines) - _LAST
        if left > 0 or cut:
            many = f"more than {max(left, 0)}" if cut else f"{left}"
            return [left_out(many, path), *lines[-_LAST:]]
        return lines
    name, begin, writer = found
    shown = [line for line in lines[begin : name + 1] if line.startswith(writer) or not line.strip()]
    after = [line for line in lines[name + 1 :] if line.startswith(writer) or not line.strip()]
    first, last = _AFTER
    if len(after) > first + last:
        after = [*after[:first], left_out(f"{len(after) - first - last}", path), *after[-last:]]
    return shown + after


def cause(text: bytes, rank: int | None = None) -> str | None:
    """The line of `text`, the end of a log, that names why its process failed: of the traceback that
    `excerpt` shows, the exception; without one, the last of its last lines that reads like an error. None: no
    line does.
    """
    text = _end_that_matters(text)
    lines = _lines(text)
    if found := _traceback(lines, text, rank):
        name, begin, writer = found
        group = (line for line in lines[begin:name] if line.startswith(writer + _OF_GROUP))
        line = next(group, lines[name]).removeprefix(writer).removeprefix(_OF_GROUP)
        if line[:1].isspace():  # it was cut off before the exception
            return None
        below = next((after for after in lines[name + 1 :] if after.startswith(writer)), writer)
        return _with_its_list(_text(line), below.removeprefix(writer))
    texts = (_text(line) for line in _before_torchrun(lines))
    last = [line for line in texts if line and not _EXIT.search(line)][-_LAST_ERRORS:]
    return next((line for line in reversed(last) if _ERROR.search(line)), None)


def _with_its_list(message: str, below: bytes) -> str:
    """A message with the line below it, if it ends in a colon and that line is indented: only there has torch
    the reason of `Error(s) in loading state_dict for Net:`.
    """
    if not message.endswith(":"):
        return message
    return f"{message} {_text(below)}" if below[:1].isspace() and below.strip() else message.rstrip(":")


def _end_that_matters(text: bytes) -> bytes:
    """The text from the line before its first traceback, else its last lines: ranks fail by the thousand."""
    if _TORCHRUN in text:
        return text
    first = min((at for word in _BEGINS if (at := text.find(word)) >= 0), default=max(0, len(text) - _TAIL))
    before = text.rfind(b"\n", 0, max(0, text.rfind(b"\n", 0, first)))
    return text[before + 1 :]


def _lines(text: bytes) -> list[bytes]:
    lines = [shortened(line) for line in text.split(b"\n")]
    return lines if lines[-1] else lines[:-1]


def _text(line: bytes) -> str:
    return _COLOUR.sub("", line.decode(errors="replace")).strip()


def _traceback(lines: list[bytes], text: bytes, rank: int | None) -> tuple[int, int, bytes] | None:
    """The traceback that shows the failure, the last if there are several: the numbers of the line that names
    its exception and of its first line, and what every line of it begins with.
    """
    writers = {prefix[0] for line in lines if (prefix := _WHO.match(line))}
    tracebacks = sorted((*numbers, writer) for writer in writers for numbers in _tracebacks(lines, writer))
    if rank is None and (causes := _ROOT_CAUSE.findall(text)):
        rank = int(causes[-1])
    of_rank = [found for found in tracebacks if rank is not None and found[2] == b"[rank%d]: " % rank]
    return next(reversed(of_rank or tracebacks), None)


def _before_torchrun(lines: list[bytes]) -> list[bytes]:
    """The lines before torchrun's last failure report, which has a traceback of its own."""
    says = [number for number, line in enumerate(lines) if _TORCHRUN_SAYS.search(line)]
    failed = [number for number in says if _RANK_FAILED in lines[number]]
    if not failed:
        return lines
    before = failed[-2] if len(failed) > 1 else -1  # there may have been restarts
    return lines[: next(number for number in says if number > before)] or lines


def _tracebacks(lines: list[bytes], writer: bytes) -> Iterator[tuple[int, int]]:
    """Each traceback that may have ended its process, as two line numbers: the line that names the exception
    (the first that is not indented), and the first line of the chain of exceptions that led to it.
    """
    begin, harmless, unnamed, before = 0, False, False, b""
    for number, line in enumerate(lines):
        if not line.strip() or not line.startswith(writer):
            continue
        words = line[len(writer) :]
        if unnamed and words[:1] not in (b" ", b"\t"):
            unnamed = False
            if _TORCHRUN not in words:
                yield number, begin
        if header := _HEADER.match(words):
            chained = before.startswith(_CHAINED)
            begin = begin if chained else number
            harmless = before.startswith(_HARMLESS) or (chained and harmless)
            unnamed = not harmless and not header["fatal"]
            if header["fatal"]:
                yield number, begin
        before = words
    if unnamed:
        yield len(lines) - 1, begin


def shortened(line: bytes) -> bytes:
    """A line as a terminal would show it, limited to `_WIDE` bytes."""
    line = line.rstrip(b"\r").rpartition(b"\r")[2]
    return line if len(line) <= _WIDE else line[:_WIDE] + f" … ({len(line)} bytes)".encode()


def left_out(many: str, path: str) -> bytes:
    """The line that stands for lines which are not shown."""
    return f"… {many} lines are not shown here: {path}".encode(errors="surrogateescape")
