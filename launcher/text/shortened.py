"""Texts cut to a number of a terminal's cells, of which wide characters take two. Ids of runs are cut so that
castoff finds them when they are typed as shown. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_NARROW = re.compile("[\x00-\u02ff\u2010-\u2027\u2580-\u259f]*")
"""Texts whose characters all take one cell: Latin letters, `…` and blocks."""

_DATE = re.compile(r"-\d{8}-\d{6}-(?=\w+$)")
"""When a run was submitted, in its id."""

_MARK = ".."
"""What replaces a part of an id: easy to type, and most terminals take it as part of a word."""

_MARKS = re.compile(r"\.{2,}|…")


def cells(text: str) -> int:
    """The number of cells that a text takes on a terminal."""
    if text.isascii() or _NARROW.fullmatch(text):
        return len(text)
    from rich.cells import cell_len  # late: few texts need it

    return cell_len(text)


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Fill a text with spaces to a width; `right`: before the text."""
    spaces = " " * (width - cells(text))
    return spaces + text if right else text + spaces


def first(text: str, width: int) -> str:
    """The beginning of a text that fits a width."""
    found = text[: max(width, 0)]
    while found and cells(found) > width:
        found = found[:-1]
    return found


def last(text: str, width: int) -> str:
    """The end of a text that fits a width."""
    found = text[max(len(text) - max(width, 0), 0) :]
    while found and cells(found) > width:
        found = found[1:]
    return found


def cut(text: str, width: int) -> str:
    """Cut a text to a width; … replaces the rest."""
    return text if cells(text) <= width else first(f"{first(text, width - 1)}…", width)


def cut_all(texts: Sequence[str], width: int) -> list[str]:
    """Cut texts to a width, of which each keeps its beginning."""
    return [cut(text, width) for text in texts]


def cut_middles(texts: Sequence[str], width: int) -> list[str]:
    """Cut texts to a width, of which each keeps its beginning and its end."""
    return [_cut_middle(text, width, "…") for text in texts]


def cut_ids(ids: Sequence[str], width: int) -> list[str]:
    """Cut ids of runs to a width: their dates, then the middles of their names, at last their beginnings."""
    if all(cells(one) <= width for one in ids):
        return [*ids]
    return [_cut_id(*_DATE.split(one, maxsplit=1), width=width) for one in ids]


def _cut_id(name: str, ending: str = "", *, width: int) -> str:
    """Cut an id, without its date, to a width."""
    ending = ending and f"{_MARK}{ending}"
    return last(_cut_middle(name, max(width - len(ending), 0), _MARK) + ending, width)


def _cut_middle(text: str, width: int, mark: str) -> str:
    """Cut a text to a width; its beginning gets a third of it, since ends often tell more: `seed42`."""
    if cells(text) <= width:
        return text
    if width <= len(mark):
        return mark[: max(width, 0)]
    beginning = first(text, (width - len(mark)) // 3)
    return beginning + mark + last(text, width - len(mark) - cells(beginning))


def like(reference: str) -> re.Pattern[str]:
    """The ids that a reference may mean: those that begin with it, or of which it shows parts, as
    `cut_ids` does.
    """
    parts = _MARKS.split(reference)
    return re.compile(".*".join(map(re.escape, parts)) + (".*" if len(parts) == 1 else ""), re.DOTALL)
