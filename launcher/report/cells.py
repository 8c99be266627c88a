"""Tables of a page and the text of their cells: states, times, and text from programs. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import NamedTuple

from markupsafe import Markup

Cell = str | Markup


class Table(NamedTuple):
    """A table; `numbers`: the indices of the columns with numbers."""

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numbers: Sequence[int] = ()
    note: str = ""
    """What is left out."""

    def shortened(self, first: int, last: int, where: str) -> Table:
        """Leave out rows in the middle of a long table; `where` they are."""
        left_out = len(self.rows) - first - last
        if left_out <= 0:
            return self
        rows = [*self.rows[:first], *self.rows[first + left_out :]]
        note = f"{left_out:,} rows between the first {first:,} and the last {last:,} are left out: {where}"
        return self._replace(rows=rows, note=note)


def table(caption: str, headings: Sequence[str], rows: Sequence[Sequence[Cell]], *numbers: str) -> Table:
    """Make a table without empty columns; `numbers`: the headings of the columns with numbers."""
    kept = [column for column in range(len(headings)) if column == 0 or any(row[column] for row in rows)]
    return Table(
        caption,
        [headings[column] for column in kept],
        [[row[column] for column in kept] for row in rows],
        [index for index, column in enumerate(kept) if headings[column] in numbers],
    )


def ended(word: str) -> Markup:
    """A state or an ending, in its colour."""
    return Markup('<span class="state {}">{}</span>').format(
        word if word.replace("-", "").isalpha() else "", word
    )


class Moments:
    """Formats times; `at`: when the page is made, in seconds since the epoch."""

    def __init__(self, at: float):
        self._at = at

    @property
    def zone(self) -> str:
        """The local time zone, as `CET (UTC+01:00)`."""
        local = _local(self._at)
        offset = f"{local:%z}"
        return f"{local.tzname()} (UTC{offset[:3]}:{offset[3:5]})"

    def date(self, at: float | None) -> str | Markup:
        """Format a date and time of day, to the second; empty for None."""
        if at is None:
            return ""
        local = _local(at)
        element = Markup('<time datetime="{}">{}</time>')
        return element.format(local.isoformat(timespec="seconds"), f"{local:%Y-%m-%d %H:%M:%S}")


def _local(at: float) -> datetime:
    return datetime.fromtimestamp(at, timezone.utc).astimezone()


_CONTROL = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor movements
    r"|[\]PX^_].*?(?:\x07|\x1b\\|$)"  # OSC, DCS and the like: titles, links
    r"|[ -/]*[0-Z\\^-~])",  # character sets and modes
    re.DOTALL,
)
"""Control sequences of terminals, by ECMA-48 (5th edition, 5.3 to 5.6)."""

_KEPT = frozenset("\n\t\u00a0\u202f\u3000")


def without_colours(text: str) -> str:
    """Remove a terminal's control sequences from the text of a log."""
    return _CONTROL.sub("", text)


def visible(text: str) -> str:
    """Write invisible characters, and those that reorder text, as escapes: `\\u202e`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _KEPT else _escaped(c) for c in text)


def log_text(lines: list[bytes]) -> str:
    """Format lines of a log."""
    texts = (without_colours(line.decode(errors="replace")).expandtabs() for line in lines)
    return "\n".join(visible(text.rstrip("\r\n")) for text in texts)


def cut(text: str, most: int, where: str) -> str:
    """Cut a text to `most` lines; a last line gives the number of further lines and `where` they are."""
    lines = text.splitlines()
    if len(lines) <= most:
        return text
    return "\n".join([*lines[:most], f"… {len(lines) - most} more lines: {where}"])


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()
