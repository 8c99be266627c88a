"""Tables of a page and what their cells hold: states, points in time, and anybody's text. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import NamedTuple

from markupsafe import Markup

Cell = str | Markup


class Table(NamedTuple):
    """A table; `numbers`: which columns hold numbers."""

    caption: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numbers: Sequence[int] = ()


def table(caption: str, headings: Sequence[str], rows: Sequence[Sequence[Cell]], *numbers: str) -> Table:
    """A table without its empty columns; `numbers`: the headings of those that hold numbers."""
    kept = [at for at in range(len(headings)) if at == 0 or any(row[at] for row in rows)]
    return Table(
        caption,
        [headings[at] for at in kept],
        [[row[at] for at in kept] for row in rows],
        [place for place, at in enumerate(kept) if headings[at] in numbers],
    )


def ended(word: str) -> Markup:
    """How something ended, in its colour."""
    return Markup('<span class="state {}">{}</span>').format(
        word if word.replace("-", "").isalpha() else "", word
    )


class Moments:
    """Writes points in time; `at`: when the page is made, in seconds since the epoch."""

    def __init__(self, at: float):
        self._at = at

    @property
    def zone(self) -> str:
        """`CET (UTC+01:00)`."""
        local = _local(self._at)
        offset = f"{local:%z}"
        return f"{local.tzname()} (UTC{offset[:3]}:{offset[3:5]})"

    def date(self, at: float | None) -> str | Markup:
        """A date and a time of day, to the second; empty for None."""
        if at is None:
            return ""
        local = _local(at)
        element = Markup('<time datetime="{}">{}</time>')
        return element.format(local.isoformat(timespec="seconds"), f"{local:%Y-%m-%d %H:%M:%S}")


def _local(at: float) -> datetime:
    return datetime.fromtimestamp(at, timezone.utc).astimezone()


_CONTROL = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # CSI: colours, moves
    r"|[\]PX^_].*?(?:\x07|\x1b\\|$)"  # OSC, DCS and their like: titles, links
    r"|[ -/]*[0-Z\\^-~])",  # character sets and modes
    re.DOTALL,
)
"""Control sequences as ECMA-48 (5th edition, 5.3 to 5.6) has them."""

_KEPT = frozenset("\n\t\u00a0\u202f\u3000")


def without_colours(text: str) -> str:
    """Text of a log without a terminal's control sequences."""
    return _CONTROL.sub("", text)


def visible(text: str) -> str:
    """Text with what cannot be seen, or reorders what can, written as an escape: `\\u202e`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in _KEPT else _escaped(c) for c in text)


def log_text(lines: list[bytes]) -> str:
    """Lines of a log."""
    texts = (without_colours(line.decode(errors="replace")).expandtabs() for line in lines)
    return "\n".join(visible(text.rstrip("\r\n")) for text in texts)


def cut(text: str, most: int, where: str) -> str:
    """The first lines of a text; a last one says how many more there are `where`."""
    lines = text.splitlines()
    if len(lines) <= most:
        return text
    return "\n".join([*lines[:most], f"… {len(lines) - most} more lines: {where}"])


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode()
