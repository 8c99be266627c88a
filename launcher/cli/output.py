"""What the verbs share in how they answer: tables for people, JSON for programs, and files."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from launcher.errors import Problem, printable
from launcher.errors import say as say
from launcher.runs.run import write_file

if TYPE_CHECKING:
    from rich.console import Console

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


class Table:
    """A table: on a terminal with colours and without empty columns, else plain and always the same.

    In a plain one `-` stands for nothing.
    """

    def __init__(
        self,
        headings: Sequence[str],
        rows: Sequence[Sequence[str]],
        *,
        dispensable: Sequence[str] = (),
        room: Mapping[str, int] | None = None,
    ):
        """`rows`: all that may be printed, for which it has to be wide enough.

        `dispensable`: the headings of columns that a terminal which is too narrow for all goes without, the
        first of them first. `room`: characters that a column has at least, though nothing be in it.
        """
        shown = [[cell or "-" for cell in row] for row in map(_printable, rows)]
        least = [(room or {}).get(heading, 0) for heading in headings]
        self._headings = list(headings)
        self._widths = [
            max(wide, *each) for wide, each in zip(least, _lengths([headings, *shown]), strict=True)
        ]
        self._used = list(range(len(headings)))
        self._console: Console | None = None
        if is_terminal(sys.stdout) and len(rows) <= _MOST_STYLED:
            from rich.console import Console

            self._console = Console(markup=False, emoji=False, highlight=False)
            self._used = [at for at in self._used if least[at] or any(row[at] for row in rows)] or [0]
            for heading in dispensable:
                if self._least > self._console.width:
                    self._used = [at for at in self._used if headings[at] != heading]
            self._console.width = max(self._console.width, self._least)  # no id is ever folded
        self._has_begun = False

    def print(self, rows: Sequence[Sequence[str]]) -> None:
        """Print rows, the first ones below the headings."""
        shown = list(map(_printable, rows))
        if self._console is not None:
            self._print_styled(self._console, shown)
        else:
            headings = [] if self._has_begun else [self._headings]
            for row in (*headings, *([cell or "-" for cell in row] for row in shown)):
                cells = (cell.ljust(width) for cell, width in zip(row, self._widths, strict=True))
                click.echo("  ".join(cells).rstrip())
        self._has_begun = True

    @property
    def _least(self) -> int:
        """The characters that its columns need."""
        *before, last = (self._widths[at] for at in self._used)
        return sum(width + 2 for width in before) + (min(last, _LAST) if before else last)

    def _print_styled(self, console: Console, rows: list[list[str]]) -> None:
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(
            box=None, header_style="bold", pad_edge=False, show_header=not self._has_begun, expand=False
        )
        *before, last = self._used
        for at in before:
            table.add_column(self._headings[at], no_wrap=True, min_width=self._widths[at])
        table.add_column(self._headings[last], overflow="fold")
        for row in rows:
            table.add_row(*(Text(row[at], style=_STYLES.get(row[at], "")) for at in self._used))
        console.print(table, soft_wrap=True)


def print_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, dispensable: Sequence[str] = ()
) -> None:
    """Print a `Table` of these rows."""
    Table(headings, rows, dispensable=dispensable).print(rows)


def _printable(row: Sequence[str]) -> list[str]:
    return [printable(cell) for cell in row]


def _lengths(rows: Sequence[Sequence[str]]) -> list[list[int]]:
    """The lengths of the cells of each column."""
    return [[len(cell) for cell in column] for column in zip(*rows, strict=True)]


_LAST = 12
"""Characters that the last column needs at least; it alone may be folded."""


def write_output(path: Path, text: str, mode: int) -> None:
    """Write a file that the user named: a device or a pipe is written to, and a link stays one.

    Raises:
        OSError: it cannot be written.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
    else:
        write_file(Path(os.path.realpath(path)), text, mode)
