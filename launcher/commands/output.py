"""What the verbs share in how they answer: tables for people, JSON for programs, and files."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import click

from launcher.errors import Problem, printable
from launcher.errors import say as say
from launcher.runs import write_file

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for programs, an object a line; errors too."
)

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


def print_json(*answers: Any) -> None:
    """Print plain data as JSON, each on a line of its own."""
    for answer in answers:
        click.echo(json.dumps(answer))


def error_as_json(message: str, code: int, problems: Sequence[Problem]) -> str:
    """An error as a line of JSON; `problems`: the parts of it, where it is an input that is wrong."""
    told: dict[str, Any] = {"error": message, "exit_code": code}
    if problems:
        told["problems"] = [
            {"where": one.where, "field": one.path, "message": one.message} for one in problems
        ]
    return json.dumps(told)


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal; one that was closed is None."""
    return stream is not None and stream.isatty()


def print_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, dispensable: Sequence[str] = ()
) -> None:
    """Print a table: on a terminal with colours and without empty columns, else plain and always the same.

    In a plain one `-` stands for nothing. `dispensable`: the headings of columns that a terminal which is
    too narrow for all goes without, the first of them first.
    """
    shown = [[printable(cell) for cell in row] for row in rows]
    if is_terminal(sys.stdout) and len(rows) <= _MOST_STYLED:
        _print_styled(headings, shown, dispensable)
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


def _print_styled(headings: Sequence[str], rows: list[list[str]], dispensable: Sequence[str]) -> None:
    """Print a table with colours, as wide as the terminal if its columns allow: no id is ever folded."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(markup=False, emoji=False, highlight=False)
    used = [number for number in range(len(headings)) if any(row[number] for row in rows)]
    for heading in dispensable:
        if _least(headings, rows, used) > console.width:
            used = [number for number in used if headings[number] != heading]
    console.width = max(console.width, _least(headings, rows, used))
    table = Table(box=None, header_style="bold", pad_edge=False)
    for number in used:
        table.add_column(headings[number], no_wrap=number != used[-1], overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[number], style=_STYLES.get(row[number], "")) for number in used))
    console.print(table, soft_wrap=True)


def _least(headings: Sequence[str], rows: list[list[str]], used: list[int]) -> int:
    """The characters that these columns need."""
    *before, last = _widths([[row[number] for number in used] for row in (headings, *rows)])
    return sum(width + 2 for width in before) + (min(last, _LAST) if before else last)


def write_output(path: Path, text: str, mode: int) -> None:
    """Write a file that the user named: a device or a pipe is written to, and a link stays one.

    Raises:
        OSError: it cannot be written.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
    else:
        write_file(Path(os.path.realpath(path)), text, mode)
