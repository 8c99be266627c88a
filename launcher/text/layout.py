"""Text for a terminal of a given width: styled spans, tables with fitting columns, bars and curves. Pure."""

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
"""The style of a cell that contains only this state or ending, in colours of the terminal's own palette."""

_BLOCKS = "▁▂▃▄▅▆▇█"


class Span(NamedTuple):
    """A part of a line in one style."""

    text: str
    style: str = ""
    """The name of a rich style."""


Line = list[Span]


class Cell(NamedTuple):
    """A cell of a table."""

    text: str
    style: str = ""
    right: bool = False
    """Whether it is aligned to the right, like numbers."""


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
    """Choose the columns of a table that fit the width, with two spaces between them: their widths by index.

    Empty columns other than the first are left out. `dispensable`: headings of columns to leave out, in this
    order, while the table is wider than `width`.
    """
    columns = enumerate(zip(headings, *rows, strict=True))
    widths = {index: max(map(len, column)) for index, column in columns if index == 0 or any(column[1:])}
    for heading in dispensable:
        if width is not None and table_width(widths) > width:
            widths.pop(headings.index(heading), None)
    return widths


def table_width(widths: Mapping[int, int]) -> int:
    """The width of a table with these columns."""
    return sum(widths.values()) + 2 * len(widths) - 2


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    width: int | None,
    *,
    dispensable: Sequence[str] = (),
    flexible: Mapping[str, int] = MappingProxyType({}),
) -> list[Line]:
    """Format a table as lines, the headings first. Without `width`, it is as wide as its cells.

    `flexible`: columns that share the remaining width and may be cut, each to so many characters at least.
    """
    texts = [[cell.text for cell in row] for row in rows]
    least = [
        [text[: flexible.get(heading)] for heading, text in zip(headings, row, strict=True)] for row in texts
    ]
    widths = fitted(headings, least, width, dispensable=dispensable)
    for index in [column for column in widths if headings[column] in flexible]:
        wanted = max(len(row[index]) for row in texts) if texts else 0
        missing = max(wanted - widths[index], 0)
        widths[index] += missing if width is None else min(max(width - table_width(widths), 0), missing)
    sides = rows[0] if rows else [Cell("")] * len(headings)
    top = [Cell(column, "bold", side.right) for column, side in zip(headings, sides, strict=True)]
    return [_table_line(row, widths) for row in (top, *rows)]


def _table_line(row: Sequence[Cell], widths: Mapping[int, int]) -> Line:
    spans = []
    for index, width in widths.items():
        text, style, right = row[index]
        text = cut(text, width)
        spans.append(Span(text.rjust(width) if right else text.ljust(width), style))
        spans.append(Span("  "))
    return spans[:-1]


def cut(text: str, width: int) -> str:
    """Cut a text to a width; … replaces the rest."""
    return text if len(text) <= width else f"{text[: max(width - 1, 0)]}…"[:width]


def bar(part: float, width: int) -> str:
    """A bar that shows a fraction from 0 to 1."""
    filled = round(min(max(part, 0.0), 1.0) * width)
    return "█" * filled + "░" * (width - filled)


def sparkline(values: Sequence[float], width: int) -> str:
    """A curve in one line of blocks, each the mean of neighbouring values."""
    if not values or width < 1:
        return ""
    count = min(width, len(values))
    scale = max(map(abs, values)) or 1.0  # the sum of large numbers could overflow
    edges = [index * len(values) // count for index in range(count + 1)]
    means = [
        sum(value / scale for value in values[begin:end]) / (end - begin) for begin, end in pairwise(edges)
    ]
    low, span = min(means), max(means) - min(means)
    top = len(_BLOCKS) - 1
    return "".join(_BLOCKS[round((mean - low) / span * top) if span > 0 else 0] for mean in means)


def number(value: float) -> str:
    """Format a number with four significant digits, or with all digits if it is whole and below 1e10."""
    if math.isfinite(value) and value == int(value) and abs(value) < 1e10:  # a step with all its digits
        return str(int(value))
    return f"{value:.4g}"
