"""Text for a terminal of some width: spans with a style, tables whose columns fit, bars and curves. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

STATE_STYLES = {
    "done": "green",
    **dict.fromkeys(("running", "stopping"), "cyan"),
    "pending": "blue",
    **dict.fromkeys(("resume", "cancelled", "preempted", "walltime"), "yellow"),
    "unknown": "magenta",
    **dict.fromkeys(("failed", "out-of-memory", "node-failure"), "bold red"),
}
"""Of a cell that holds such a word alone: a terminal's own colours, which it shows well on its background."""

_BLOCKS = "▁▂▃▄▅▆▇█"


class Span(NamedTuple):
    """A piece of a line."""

    text: str
    style: str = ""
    """A style's name as rich has it."""


Line = list[Span]


class Cell(NamedTuple):
    """A cell of a table."""

    text: str
    style: str = ""
    right: bool = False
    """Whether it ends at the right of its column, as numbers do."""


def state_cell(word: str) -> Cell:
    """A cell with a state or an ending."""
    return Cell(word, STATE_STYLES.get(word, ""))


def fitted(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    width: int | None,
    *,
    dispensable: Sequence[str] = (),
) -> dict[int, int]:
    """The columns of a table that fit, by their place, each with its width; two spaces stand between them.

    A column that no row fills is left out, but the first. `dispensable`: the headings of columns that a table
    which is wider than `width` goes without, the first of them first.
    """
    columns = enumerate(zip(headings, *rows, strict=True))
    widths = {at: max(map(len, column)) for at, column in columns if at == 0 or any(column[1:])}
    for heading in dispensable:
        if width is not None and table_width(widths) > width:
            widths.pop(headings.index(heading), None)
    return widths


def table_width(widths: Mapping[int, int]) -> int:
    """How wide a table of such columns is."""
    return sum(widths.values()) + 2 * len(widths) - 2


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    width: int | None,
    *,
    dispensable: Sequence[str] = (),
    flexible: Mapping[str, int] = MappingProxyType({}),
) -> list[Line]:
    """A table as lines, the headings first; without a `width` it is as wide as its cells.

    `flexible`: columns that share what is left and are cut, but to no less than so many characters.
    """
    texts = [[cell.text for cell in row] for row in rows]
    least = [[text[: flexible.get(of)] for of, text in zip(headings, row, strict=True)] for row in texts]
    widths = fitted(headings, least, width, dispensable=dispensable)
    for at in [one for one in widths if headings[one] in flexible]:
        wanted = max(len(row[at]) for row in texts) if texts else 0
        missing = max(wanted - widths[at], 0)
        widths[at] += missing if width is None else min(max(width - table_width(widths), 0), missing)
    sides = rows[0] if rows else [Cell("")] * len(headings)
    top = [Cell(one, "bold", side.right) for one, side in zip(headings, sides, strict=True)]
    return [_table_line(row, widths) for row in (top, *rows)]


def _table_line(row: Sequence[Cell], widths: Mapping[int, int]) -> Line:
    spans = []
    for at, width in widths.items():
        text, style, right = row[at]
        text = cut(text, width)
        spans.append(Span(text.rjust(width) if right else text.ljust(width), style))
        spans.append(Span("  "))
    return spans[:-1]


def cut(text: str, width: int) -> str:
    """A text that is no longer than that; … stands for what is missing."""
    return text if len(text) <= width else f"{text[: max(width - 1, 0)]}…"[:width]


def bar(part: float, width: int) -> str:
    """A bar that is filled to a part from 0 to 1."""
    filled = round(min(max(part, 0.0), 1.0) * width)
    return "█" * filled + "░" * (width - filled)


def sparkline(values: Sequence[float], width: int) -> str:
    """A curve in one line: as many means of neighbours as fit, from the lowest to the highest block."""
    if not values or width < 1:
        return ""
    count = min(width, len(values))
    scale = max(map(abs, values)) or 1.0  # the sum of the largest numbers would be infinite
    edges = [at * len(values) // count for at in range(count + 1)]
    means = [
        sum(value / scale for value in values[begin:end]) / (end - begin) for begin, end in pairwise(edges)
    ]
    low, span = min(means), max(means) - min(means)
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[round((mean - low) / span * top) if span > 0 else 0] for mean in means)


def number(value: float) -> str:
    """A number at a glance: four digits that count; `nan` and `inf` too."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1e10:  # a step with all its digits
        return str(int(value))
    return f"{value:.4g}"
