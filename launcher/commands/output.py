"""What the verbs share in how they answer: tables for people, JSON for programs, and files."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

import click

from launcher.errors import printable
from launcher.runs import write_file

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")

_MOST_STYLED = 400
"""Rows; more would take rich a second, and nobody reads them at a glance."""

_STYLES = {
    "done": "green",
    "running": "cyan",
    "stopping": "cyan",
    "pending": "blue",
    "again": "yellow",
    "cancelled": "yellow",
    "preempted": "yellow",
    "walltime": "yellow",
    "unknown": "magenta",
    "failed": "bold red",
    "out-of-memory": "bold red",
    "node-failure": "bold red",
}
"""Of a cell that holds such a word alone."""


def print_json(answer: Any) -> None:
    """Print plain data as JSON."""
    click.echo(json.dumps(answer, indent=2))


def say(line: str) -> None:
    """Say something on standard error.

    It may hold anybody's text, a file's name or a scheduler's answer: what would move a terminal's
    cursor is shown escaped.
    """
    click.echo(f"castoff: {printable(line)}", err=True)


def print_json_list(answers: Iterable[Any]) -> None:
    """Print a JSON list with one of its elements on each line: indented, thousands take a while."""
    lines = ",\n".join(json.dumps(answer) for answer in answers)
    click.echo(f"[\n{lines}\n]" if lines else "[]")


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal; one that was closed is None."""
    return stream is not None and stream.isatty()


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: on a terminal with colours and without empty columns, else plain and always the same.

    In a plain one `-` stands for nothing.
    """
    shown = [[printable(cell) for cell in row] for row in rows]
    if is_terminal(sys.stdout) and len(rows) <= _MOST_STYLED and _print_styled(headings, shown):
        return
    filled = [[cell or "-" for cell in row] for row in shown]
    widths = _widths([headings, *filled])
    for row in (headings, *filled):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo("  ".join(cells).rstrip())


def _widths(rows: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]


_LAST = 12
"""Characters that the last column needs at least; it alone may be folded."""


def _print_styled(headings: Sequence[str], rows: list[list[str]]) -> bool:
    """Print a table with colours; not where an id would have to be folded, which nobody could copy."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    used = [number for number in range(len(headings)) if any(row[number] for row in rows)]
    *before, last = _widths([[row[number] for number in used] for row in (headings, *rows)])
    console = Console(markup=False, emoji=False, highlight=False)
    if sum(width + 2 for width in before) + min(last, _LAST) > console.width:
        return False
    table = Table(box=None, header_style="bold", pad_edge=False)
    for number in used:
        table.add_column(headings[number], no_wrap=number != used[-1], overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[number], style=_STYLES.get(row[number], "")) for number in used))
    console.print(table)
    return True


def write_output(path: Path, text: str, mode: int) -> None:
    """Write a file that the user named: a device or a pipe is written to, and a link stays one.

    Raises:
        OSError: it cannot be written.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
    else:
        write_file(Path(os.path.realpath(path)), text, mode)
