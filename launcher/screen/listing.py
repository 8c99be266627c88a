"""The list of runs as lines of text: which runs are shown, in which order, and their columns. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from castoff.launcher.errors import printable
from castoff.launcher.history.listing import RunWords, run_words
from castoff.launcher.history.progress import Left, Metric, Progress, time_left
from castoff.launcher.runs.states import FAILED, RunSummary
from castoff.launcher.status.overview import Row
from castoff.launcher.text.layout import Cell, Column, Line, bar, number, state_cell, table
from castoff.launcher.text.shortened import cut_ids
from castoff.launcher.text.words import brief

FILTERS: Mapping[str, Callable[[RunSummary], bool]] = {
    "all": lambda _: True,
    "active": lambda summary: not summary.over,
    "failed": lambda summary: summary.ending in FAILED,
}
"""The filters by name, in the order in which the key `f` selects them."""

_COLUMNS = (
    Column("run", least=16, shorten=cut_ids),
    Column("state"),
    Column("progress", goes=6, least=24),
    Column("loss", goes=4),
    Column("left", goes=5),
    Column("site", goes=2, if_alike=False),
    Column("queue", goes=1),
    Column("age", goes=3),
)

WIDE = 120
"""The width from which a screen has columns for site and queue."""


_BAR = 8
_ORDER = ("running", "pending", "unknown")


class Item(NamedTuple):
    """A run and its progress."""

    row: Row
    progress: Progress | None = None
    deadline: float | None = None
    """When the walltime of its attempt ends, in seconds since the epoch."""
    silent_since: float | None = None
    """When the ranks of its attempt became silent, if they are."""
    queue: str = ""
    """The queue or partition; empty if there is none, or if it has not been read."""

    @property
    def path(self) -> str:
        """The run directory."""
        return self.row.entry.path


class Order(NamedTuple):
    """By which column runs are sorted."""

    column: str
    reverse: bool = False

    @property
    def words(self) -> str:
        """The column with an arrow."""
        return f"{self.column} {'▼' if self.reverse else '▲'}"


_KEYS: Mapping[str, Callable[[Item], float | str | None]] = {
    "run": lambda item: item.row.entry.id.casefold(),
    "state": lambda item: item.row.summary.word,
    "progress": lambda item: item.progress and item.progress.part,
    "loss": lambda item: item.progress and item.progress.loss and _finite(item.progress.loss.value),
    "left": lambda item: _end(item),
    "site": lambda item: item.row.summary.site or None,
    "queue": lambda item: item.queue or None,
    "age": lambda item: -item.row.submitted,
}
"""What runs are sorted by in the order of a column; None comes last."""


def next_order(order: Order | None, width: int) -> Order | None:
    """The order of the next column; None: running runs first."""
    columns = [*_KEYS] if width >= WIDE else [name for name in _KEYS if name not in ("site", "queue")]
    index = columns.index(order.column) + 1 if order and order.column in columns else 0
    return Order(columns[index]) if index < len(columns) else None


def shown(items: Iterable[Item], filter_name: str, search: str, order: Order | None = None) -> list[Item]:
    """Select the runs to show, in this order; without one, running ones come first, then waiting ones, the
    newest of each first.
    """
    wanted = FILTERS[filter_name]
    selected = [
        item
        for item in items
        if wanted(item.row.summary) and search.casefold() in item.row.entry.id.casefold()
    ]
    selected.sort(key=lambda item: (_place(item.row.summary), -item.row.submitted))
    if order is None:
        return selected
    keys = {item.path: _KEYS[order.column](item) for item in selected}
    known = [item for item in selected if keys[item.path] is not None]
    known.sort(key=lambda item: keys[item.path], reverse=order.reverse)  # type: ignore[arg-type, return-value]
    return [*known, *(item for item in selected if keys[item.path] is None)]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _end(item: Item) -> float | None:
    """When a run ends, by its last step or its walltime."""
    left = time_left(item.progress and item.progress.end, item.deadline, 0.0)
    return left and left.seconds


def _place(summary: RunSummary) -> int:
    if summary.over or summary.state not in _ORDER:
        return len(_ORDER)
    return _ORDER.index(summary.state)


def heading(items: Sequence[Item], filter_name: str, search: str, left_out: int, marked: int = 0) -> str:
    """The number of runs in each state and of marked ones, and the filters that apply."""
    counts = Counter(item.row.summary.state for item in items)
    words = [f"{counts[state]} {state}" for state in (*_ORDER, "ended") if counts[state]]
    if marked:
        words.append(f"{marked} marked")
    if left_out:
        words.append(f"{left_out} older (a)")
    if filter_name != "all":
        words.append(f"filter: {filter_name}")
    if search:
        words.append(f"search: {printable(search)}")
    return ", ".join(["castoff top", *words]) if words else "castoff top"


def lines(
    items: Sequence[Item],
    now: float,
    width: int,
    order: Order | None = None,
    marked: Collection[str] = (),
) -> list[Line]:
    """The headings, and a line for each run, both `width` wide. `marked`: directories of runs."""
    columns = [
        column._replace(heading=order.words) if order and order.column == column.heading else column
        for column in _COLUMNS
    ]
    rows = [_cells(item, now, is_wide=width >= WIDE) for item in items]
    if marked:
        columns = [Column(""), *columns]
        rows = [
            (Cell("*" if item.path in marked else " ", "bold"), *row)
            for item, row in zip(items, rows, strict=True)
        ]
    return table(columns, rows, width).lines


def _cells(item: Item, now: float, *, is_wide: bool) -> tuple[Cell, ...]:
    words = run_words(item.row.summary, now, item.progress, item.deadline, item.silent_since)
    return (
        Cell(printable(item.row.entry.id)),
        state_cell(words.state),
        Cell(printable(_progress(words)), "yellow" if words.silence else ""),
        _loss_cell(words.loss),
        Cell(_left(words.left), right=True),
        Cell(printable(item.row.summary.site) if is_wide else ""),
        Cell(printable(item.queue) if is_wide else ""),
        Cell(brief(now - item.row.submitted), right=True),
    )


def _progress(words: RunWords) -> str:
    """The progress of a run, with a bar; or instead, its silence, or why it waits, failed or is unknown."""
    drawn = "" if words.part is None else f"{bar(words.part, _BAR)} "
    if words.members:
        return "; ".join(filter(None, (drawn + words.members, words.why)))
    if words.silence:
        return ", ".join(filter(None, (words.silence, words.steps and f"step {words.steps}")))
    return words.why if words.is_explained else steps_with_bar(words.steps, words.part, _BAR)


def steps_with_bar(steps: str, part: float | None, width: int) -> str:
    """The steps, with a bar if their total is known."""
    if part is None:
        return steps and f"step {steps}"
    return f"{bar(part, width)} {min(part, 1):4.0%} {steps}"


def _loss_cell(loss: Metric | None) -> Cell:
    """The newest loss, highlighted if it is not finite."""
    if loss is None:
        return Cell("", right=True)
    return Cell(number(loss.value), "" if math.isfinite(loss.value) else "bold red", right=True)


def _left(left: Left | None) -> str:
    """The time left, for a narrow column: with `wall` if the walltime ends before the last step."""
    if left is None:
        return ""
    return f"wall {brief(left.seconds)}" if left.is_walltime else brief(left.seconds)
