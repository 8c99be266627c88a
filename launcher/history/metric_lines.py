"""Decodes lines of JSON objects, many at once where they look alike.

A program writes the same metrics in most lines. msgspec decodes such lines to structures of known fields,
which takes a tenth of the time of json. All other lines are decoded one by one.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import msgspec

_LONGEST_LINE = 1 << 20
"""Bytes; longer lines are ignored."""

_BLOCK = 1 << 16
"""The number of bytes that are decoded together. More take longer, since they leave the processor's cache."""

_FEW = 16
"""The number of lines that are decoded one by one around a line that differs."""

_MOST_FIELDS = 400
"""The maximum number of names; lines with others are decoded one by one."""

ABOUT = ("step", "time", "epoch", "total_steps")
"""Numbers that are not metrics."""

DESCRIPTIONS = ("folder", "parameters", "packages", "device")
"""Names of what describes the program."""

BEGINS = frozenset({"total_steps", *DESCRIPTIONS})
"""A line with one of these and without metrics describes the lines that follow."""

_ODD = {"\ue000nan": math.nan, "\ue000inf": math.inf, "\ue000-inf": -math.inf}
"""Numbers that only Python writes, by the strings that replace them before decoding."""

_ODD_WORDS = {"NaN": "\ue000nan", "Infinity": "\ue000inf", "-Infinity": "\ue000-inf"}
_ODD_NUMBER = re.compile(rb"(?<=:)(\s*)(NaN|-?Infinity)(?=\s*[,}])")
_NO_FIELD = re.compile('[\\\\"\x00-\x1f\x7f\ud800-\udfff\ue000]')
"""Characters that msgspec does not allow in the name of a field."""

Numbers = list[float | None]


class Line(NamedTuple):
    """A line that was decoded by itself."""

    start: int
    """The offset of its first byte."""
    end: int
    content: Any
    """None if it is not JSON."""


class Rows(NamedTuple):
    """Lines that were decoded together, each an object, as columns with None where a line has no number."""

    start: int
    end: int
    number: int
    steps: Numbers | None
    """Finite numbers; None if no line has a step."""
    times: Numbers | None
    epochs: Numbers | None
    total_steps: float | None
    """The last one."""
    metrics: dict[str, Numbers]
    """The metrics that some line has, which may not be finite."""
    has_gaps: bool
    """Whether some lines have no metrics."""
    descriptions: list[dict[str, Any]]
    """What describes the program, in order."""


class LineDecoder:
    """Decodes the lines of a member's files, and learns on the way what most of them have."""

    def __init__(self) -> None:
        self._is_number: dict[str, bool] = {}
        """The names of fields, and whether all their values are numbers."""
        self._getters: dict[str, attrgetter[Any]] = {}
        self._plain: msgspec.json.Decoder[Any] | None = None
        self._odd: msgspec.json.Decoder[Any] | None = None
        """The same for values that are not finite."""

    def read(self, path: Path, start: int) -> Iterator[Rows | Line]:
        """Decode the whole lines of a file from byte `start` on."""
        with _opened(path) as file:
            file.seek(start)
            rest = b""
            while data := file.read(_BLOCK):
                block = rest + data
                length = block.rfind(b"\n") + 1
                rest = block[length:]
                if length:
                    yield from self._split(block[:length], start)
                    start += length
                elif len(data) < _BLOCK:
                    return  # the line is still being written
                else:
                    file.seek(start)
                    line = file.readline(_LONGEST_LINE)
                    if not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
                        return
                    yield Line(start, start + len(line), _decoded(line))
                    start += len(line)
                    rest = b""

    def _split(self, data: bytes, start: int) -> Iterator[Rows | Line]:
        """Decode lines together, or else the lines of each half of them."""
        rows = self._rows(data, start)
        if rows is not None:
            yield rows
            return
        middle = data.find(b"\n", len(data) // 2, -1) + 1
        if middle and data.count(b"\n") > _FEW:
            yield from self._split(data[:middle], start)
            yield from self._split(data[middle:], start + middle)
            return
        for line in (one + b"\n" for one in data[:-1].split(b"\n")):
            content = _decoded(line)
            if isinstance(content, dict):
                self._learn(content)
            yield Line(start, start + len(line), content)
            start += len(line)

    def _rows(self, data: bytes, start: int) -> Rows | None:
        """Decode lines together; None if they do not look alike, or describe the lines that follow."""
        number = data.count(b"\n")
        found, is_odd = self._structures(b"[%b]" % data[:-1].replace(b"\n", b","))
        if found is None or len(found) != number:
            return None
        columns = {name: list(map(getter, found)) for name, getter in self._getters.items()}
        descriptions = _descriptions(columns)
        totals = columns.pop("total_steps", [])
        if is_odd and descriptions:
            return None  # they may contain what was replaced
        numbers, is_full = {}, {}
        for name, column in columns.items():
            values, is_full[name] = self._numbers(name, column, is_odd=is_odd)
            if values is not None:
                numbers[name] = values
        steps, times, epochs = (_finite(numbers.pop(name, None), is_odd=is_odd) for name in ABOUT[:3])
        has_gaps = not any(is_full[name] for name in numbers) and _has_gaps(numbers)
        if has_gaps and (descriptions or totals.count(msgspec.UNSET) < len(totals)):
            return None
        total = next((one for one in map(finite_number, reversed(totals)) if one is not None), None)
        return Rows(
            start, start + len(data), number, steps, times, epochs, total, numbers, has_gaps, descriptions
        )

    def _structures(self, data: bytes) -> tuple[list[Any] | None, bool]:
        """A structure for each object of an array, and whether strings have replaced NaN and infinities."""
        if not self._is_number:
            return None, False
        if self._plain is None or self._odd is None:
            self._plain, self._odd = _decoder(self._is_number, float), _decoder(self._is_number, _Odd)
        try:
            return self._plain.decode(data), False
        except (msgspec.MsgspecError, ValueError, RecursionError):
            pass
        if (b"NaN" not in data and b"Infinity" not in data) or "\ue000".encode() in data:
            return None, False
        try:
            return self._odd.decode(_ODD_NUMBER.sub(_odd_word, data)), True
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None, False

    def _numbers(self, name: str, column: list[Any], *, is_odd: bool) -> tuple[Numbers | None, bool]:
        """The numbers of a column, None if there are none; and whether each line has one."""
        if is_odd:
            column = [_ODD.get(item, item) if isinstance(item, str) else item for item in column]
        if not self._is_number[name]:
            column = [*map(any_number, column)]
        try:
            sum(column)  # much faster than a search for None
        except TypeError:
            return None if column.count(None) == len(column) else column, False
        return column, True

    def _learn(self, line: Mapping[str, Any]) -> None:
        """Learn the names and kinds of a line."""
        kinds = dict(self._is_number)
        for name, item in line.items():
            is_number = item is None or any_number(item) is not None
            if name in DESCRIPTIONS or not is_number:
                kinds[name] = False
            elif not _NO_FIELD.search(name):
                kinds.setdefault(name, True)
        kinds = {name: is_number for name, is_number in kinds.items() if not _NO_FIELD.search(name)}
        if kinds == self._is_number or len(kinds) > _MOST_FIELDS:
            return
        self._is_number = kinds
        self._getters = {name: attrgetter(f"f{index}") for index, name in enumerate(kinds)}
        self._plain = self._odd = None


_Odd = float | Literal["\ue000nan", "\ue000inf", "\ue000-inf"]


def _decoder(kinds: Mapping[str, bool], number: Any) -> msgspec.json.Decoder[Any]:
    """A decoder of an array of objects with these fields only, of which any may be absent."""
    fields: list[Any] = []
    for index, (name, is_number) in enumerate(kinds.items()):
        kind = number | None if is_number else Any
        if name in BEGINS:  # null describes, too
            fields.append((f"f{index}", kind | msgspec.UnsetType if is_number else Any, msgspec.UNSET))
        else:
            fields.append((f"f{index}", kind, None))
    rename = {f"f{index}": name for index, name in enumerate(kinds)}
    line = msgspec.defstruct("Line", fields, rename=rename, forbid_unknown_fields=True, gc=False)
    return msgspec.json.Decoder(list[line])  # type: ignore[valid-type]


def _odd_word(match: re.Match[bytes]) -> bytes:
    return match[1] + json.dumps(_ODD_WORDS[match[2].decode()]).encode()


def _descriptions(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Take what describes the program out of columns."""
    found = {name: columns.pop(name) for name in DESCRIPTIONS if name in columns}
    each = (
        {name: item for name, item in zip(found, items, strict=True) if item is not msgspec.UNSET}
        for items in zip(*found.values(), strict=True)
    )
    return [line for line in each if line]


def _finite(column: Numbers | None, *, is_odd: bool) -> Numbers | None:
    return [*map(finite_number, column)] if column is not None and is_odd else column


def _has_gaps(metrics: Mapping[str, Numbers]) -> bool:
    """Whether some lines have none of these metrics, each of which some lines lack."""
    return not metrics or (None,) * len(metrics) in zip(*metrics.values(), strict=True)


def lines_of(path: Path, start: int) -> Iterator[Line]:
    """Decode the whole lines of a file one by one, from byte `start` on."""
    with _opened(path) as file:
        file.seek(start)
        while data := file.readline(_LONGEST_LINE):
            if not data.endswith(b"\n") and len(data) < _LONGEST_LINE:
                return  # the line is still being written
            yield Line(start, start + len(data), _decoded(data))
            start += len(data)


def _opened(path: Path) -> BinaryIO:
    """Open a regular file, without following a link; an empty one in its place if that fails."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return Path(os.devnull).open("rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        return Path(os.devnull).open("rb")
    return os.fdopen(descriptor, "rb")


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)  # four times as fast as json
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass  # json also reads NaN and lone surrogates, which Python writes
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def finite_number(value: object) -> float | None:
    """A finite number; None for any other value."""
    number = any_number(value)
    return number if number is not None and math.isfinite(number) else None


def any_number(value: object) -> float | None:
    """A number as a float, including NaN and infinities; None for other values and too large numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None
