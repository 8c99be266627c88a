"""Numbers that a program printed or wrote to a file, found by a regular expression."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from castoff.launcher.config.references import filled
from castoff.launcher.config.workdir import as_path
from castoff.launcher.errors import CastoffError, printable, shown
from castoff.launcher.history.metrics import Point
from castoff.launcher.report.results import Values
from castoff.launcher.runs.plan import Plan
from castoff.launcher.runs.records import read
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import MemberStatus

LOG = "log"
"""The name of a member's own log."""

UNNAMED = "value"
"""The name of a number that the expression does not name."""

_BLOCK = 1 << 20
"""Bytes that are read at a time, from the end of a file."""


class Search:
    """A search for numbers in a file of each member."""

    def __init__(self, source: str, pattern: str):
        """`source`: `log`, or a path, which may refer to parameters. `pattern`: matched in single lines.

        Raises:
            CastoffError: the pattern is not a regular expression.
        """
        try:
            self._pattern = re.compile(pattern.encode())
        except re.error as error:
            raise CastoffError(
                f"--pattern {printable(pattern)}: is not a regular expression: {error}"
            ) from None
        self._source = source
        self.names = [*self._pattern.groupindex] or [UNNAMED]
        """The names of the numbers."""
        self.missing: dict[int, str] = {}
        """Why a member has no number."""

    def values(
        self, run: RunDirectory, member: MemberStatus, parameters: Mapping[str, str]
    ) -> dict[str, Values]:
        """The numbers of a member, from the last line that matches.

        Raises:
            CastoffError: a file cannot be read.
        """
        path = next((path for path in self._places(run, member, parameters) if path.is_file()), None)
        if path is None:
            what = "log" if self._source == LOG else f"file {printable(filled(self._source, parameters))}"
            self.missing[member.member] = f"has no {what}"
            return {}
        try:
            match = next((found for line in _last_lines(path) if (found := self._last(line))), None)
        except OSError as error:
            raise CastoffError(f"{path}: cannot be read: {error.strerror}") from error
        if match is None:
            self.missing[member.member] = f"has no such line in {path}"
            return {}
        texts: dict[str, bytes | None] = match.groupdict() or {UNNAMED: match[min(1, len(match.groups()))]}
        numbers = {name: _number(text) for name, text in texts.items()}
        fix = "" if match.re.groups else ": put parentheses around the number in --pattern"
        for name in (name for name, value in numbers.items() if value is None):
            text = shown((texts[name] or b"").decode(errors="replace"))
            self.missing[member.member] = f"has {text} as {name}, which is not a number{fix}"
        return {name: _of(value) for name, value in numbers.items() if value is not None}

    def _last(self, line: bytes) -> re.Match[bytes] | None:
        return next(reversed([*self._pattern.finditer(line)]), None)

    def _places(
        self, run: RunDirectory, member: MemberStatus, parameters: Mapping[str, str]
    ) -> Iterator[Path]:
        """Where the file may be: in the folders of the newest attempt, or where its ranks ran."""
        attempt = f"{member.member}.{member.attempts[-1].attempt if member.attempts else 0}"
        if self._source == LOG:
            yield run.script_log(member.member)
            for name in ("rank-00000.log", "node-00000.log"):
                yield run.log_folder / attempt / name
            return
        source = Path(filled(self._source, parameters)).expanduser()
        yield run.path / "attempts" / attempt / source
        yield run.log_folder / attempt / source
        record, plan = run.submission(), read(run.path / "plan.json", Plan)
        folder = Path(record.directory) if record and record.directory else Path()
        if plan is not None and plan.workdir is not None:
            yield folder / as_path(filled(plan.workdir, parameters)) / source
        yield folder / source


def _last_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, the last first."""
    with path.open("rb") as file:
        left, rest = file.seek(0, 2), b""
        while left > 0:
            size = min(_BLOCK, left)
            left -= size
            file.seek(left)
            first, *lines = (file.read(size) + rest).split(b"\n")
            yield from reversed(lines)
            rest = first
        yield rest


def _number(text: bytes | None) -> float | None:
    try:
        return float((text or b"").decode(errors="replace"))
    except ValueError:
        return None


def _of(value: float) -> Values:
    point = Point(math.nan, value)
    finite = point if math.isfinite(value) else None
    return Values(1, point, finite, finite)
