"""Text for a terminal of a given width: styled spans, tables with fitting columns, bars and curves. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from castoff.launcher.text.shortened import cells, cut, cut_all, padded

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

_BETWEEN = Span("  ")


class Cell(NamedTuple):
    """A cell of a table."""

    text: str
    style: str = ""
    right: bool = False
    """Whether it is aligned to the right, like numbers."""


def state_cell(word: str) -> Cell:
    """A cell with a state or an ending."""
    return Cell(word, STATE_STYLES.get(word, ""))


class Column(NamedTuple):
    """A column of a table, and how it fits a narrow terminal."""

    heading: str
    goes: int = 0
    """0: it is always shown. Otherwise, columns with smaller numbers are hidden first."""
    least: int | None = None
    """The cells that it keeps if it is shortened; None: it is shortened only where nothing can be hidden."""
    shorten: Callable[[Sequence[str], int], Sequence[str]] = cut_all
    """Cuts its texts to a number of cells."""
    if_alike: bool = True
    """Whether it is shown on a terminal if all its texts are alike."""


class Table(NamedTuple):
    """A table as lines, the headings first, and the headings of columns for which there was no room."""

    lines: list[Line]
    hidden: list[str]


def table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int | None) -> Table:
    """Lay out a table with two spaces between columns: at most `width` cells wide, or as wide as its cells.

    Empty columns other than the first are left out. Columns are hidden if the others could not keep their
    least widths. Those that can be shortened share the remaining width in proportion to these.
    """
    texts = {index: [row[index].text for row in rows] for index in range(len(columns))}
    texts = {
        index: column for index, column in texts.items() if _is_shown(columns[index], column, index, width)
    }
    wanted = {index: _widest([columns[index].heading, *column]) for index, column in texts.items()}
    widths, shown = wanted, texts
    if width is not None and _width(wanted) > width:
        least = _kept(columns, texts, wanted, width)
        widths = _shared(least, wanted, width)
        # Where cutting takes more than it must, as an id's whole date, others get the rest.
        for index, wide in widths.items():
            if wide < wanted[index] and (used := _used(columns[index], texts[index], wide)) < wide:
                wanted[index] = used
        widths = _shared(least, wanted, width)
        shown = {index: _cut(columns[index], texts[index], wide) for index, wide in widths.items()}
    sides = rows[0] if rows else [Cell("")] * len(columns)
    lines = [_spaced(_heading(columns[index], wide, sides[index]) for index, wide in widths.items())]
    for number, row in enumerate(rows):
        lines.append(_spaced(_span(row[index], shown[index][number], wide) for index, wide in widths.items()))
    return Table(lines, [columns[index].heading for index in texts if index not in widths])


def _is_shown(column: Column, texts: Sequence[str], index: int, width: int | None) -> bool:
    """Whether a column says anything; the first always does."""
    return index == 0 or (any(texts) and (width is None or column.if_alike or len({*texts}) > 1))


def _heading(column: Column, width: int, side: Cell) -> Span:
    return Span(padded(cut(column.heading, width), width, right=side.right), "bold")


def _span(cell: Cell, shown: str, width: int) -> Span:
    return Span(padded(shown, width, right=cell.right), cell.style)


def _widest(texts: Iterable[str]) -> int:
    return max(map(cells, texts), default=0)


def _width(widths: Mapping[int, int]) -> int:
    """The width of a table with these columns."""
    return sum(widths.values()) + 2 * len(widths) - 2


def _kept(
    columns: Sequence[Column], texts: Mapping[int, Sequence[str]], wanted: Mapping[int, int], width: int
) -> dict[int, int]:
    """The shown columns with their least widths: 1 if even those that are always shown do not fit."""
    least = {
        index: wide
        if (given := columns[index].least) is None or wide <= given
        else _used(columns[index], texts[index], given)
        for index, wide in wanted.items()
    }
    kept = {index: wide for index, wide in least.items() if not columns[index].goes}
    for index in sorted(least.keys() - kept.keys(), key=lambda index: -columns[index].goes):
        if _width(more := {**kept, index: least[index]}) <= width:
            kept = more
    return {index: kept[index] if _width(kept) <= width else 1 for index in sorted(kept)}


def _shared(least: Mapping[int, int], wanted: Mapping[int, int], width: int) -> dict[int, int]:
    """Widths of columns, from the least to those that they want, which fill a table's width."""
    widths = {index: min(wide, wanted[index]) for index, wide in least.items()}
    for _ in range(width - _width(widths)):
        narrow = [index for index, wide in widths.items() if wide < wanted[index]]
        if not narrow:
            break
        widths[min(narrow, key=lambda index: widths[index] / least[index])] += 1
    return widths


def _used(column: Column, texts: Sequence[str], width: int) -> int:
    """The cells of a width that a column uses, if it is cut to that."""
    return max(_widest(column.shorten(texts, width)), min(cells(column.heading), width))


def _cut(column: Column, texts: list[str], width: int) -> list[str]:
    return [*column.shorten(texts, width)] if _widest(texts) > width else texts


def _spaced(spans: Iterable[Span]) -> Line:
    return [part for span in spans for part in (span, _BETWEEN)][:-1]


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
