"""Tables of a page, and the words in their cells. Pure."""

from __future__ import annotations

from collections.abc import Sequence
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
