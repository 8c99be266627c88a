"""Output that the verbs share: tables and durations for people, JSON for programs, and files."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from castoff.launcher.config.quantities import DURATION_PATTERN, DURATION_TAKES, seconds
from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.errors import report as report
from castoff.launcher.text.words import brief as brief
from castoff.launcher.text.words import counted
from castoff.launcher.text.words import moment as moment

if TYPE_CHECKING:
    from castoff.launcher.runs.states import RunStatus
    from castoff.launcher.text.layout import Column

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for programs, an object a line; errors too."
)

follow_option = click.option(
    "-f",
    "--follow",
    "--wait",
    "follows",
    is_flag=True,
    help="Then follow the run's logs, and exit with its code.",
)

_SGR = {
    "green": "32",
    "cyan": "36",
    "blue": "34",
    "yellow": "33",
    "magenta": "35",
    "bold red": "1;31",
    "bold": "1",
}
"""Terminal codes for the styles of states and headings."""


def interval_seconds(context: click.Context, option: click.Parameter, value: str | None) -> float:
    """Convert the value of --interval to seconds."""
    from castoff.launcher.status.poller import LOOK_INTERVAL

    seconds = duration(context, option, value)
    if seconds is None:
        return LOOK_INTERVAL
    if seconds < 1:
        raise click.BadParameter(f"is {value!r}, which is too short: write 1s or more")
    return float(seconds)


interval_option = click.option(
    "--interval",
    callback=interval_seconds,
    metavar="TIME",
    help="Time between two updates, as 10s; default: 2s.",
)


def check_followed(follows: bool, excluded: Mapping[str, bool]) -> None:
    """Fail if --follow is combined with a flag that it excludes. `excluded`: whether each flag is set."""
    for flag in (flag for flag, is_set in excluded.items() if follows and is_set):
        click.get_current_context().fail(f"--follow excludes {flag}: drop one")


def print_json(*answers: Any) -> None:
    """Print plain data as JSON, one object per line."""
    import json

    for answer in answers:
        click.echo(json.dumps(answer))


def print_facts(**facts: object) -> None:
    """Print facts for people, one per line; None is omitted."""
    for name, fact in facts.items():
        if fact is not None:
            click.echo(f"{name.replace('_', '-'):11} {printable(str(fact))}")


def print_script(script: str) -> None:
    """Print a script unchanged, in UTF-8 whatever the locale; on a terminal, through a pager.

    PAGER names the pager; `PAGER=cat` prints directly. less exits at once if the script fits the screen, as
    it does for git, unless LESS sets other options.
    """
    if is_terminal(sys.stdin) and is_terminal(sys.stdout):
        os.environ.setdefault("LESS", "FRX")
        click.echo_via_pager(script.removesuffix("\n"))  # click adds the newline
    else:
        click.echo(script.encode(), nl=False)


def write_output(name: str, text: str, mode: int) -> None:
    """Replace a file as a whole, or write to a device or a pipe.

    Raises:
        CastoffError: the file cannot be written.
    """
    from castoff.launcher.process import files

    path = Path(name)
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_text(text, encoding="utf-8", errors="surrogateescape")
        else:
            files.replace(Path(os.path.realpath(path)), text, mode)  # keeps a symbolic link
    except OSError as error:
        raise CastoffError(f"{printable(name)}: cannot be written: {error.strerror}") from error


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal; None is a closed stream."""
    return stream is not None and stream.isatty()


def has_colours() -> bool:
    """Whether standard output is a terminal with colours, and neither NO_COLOR nor TERM=dumb is set."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return wanted and is_terminal(sys.stdout)


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, and report the columns that a narrow terminal hides; see `table_lines`."""
    lines, notes = table_lines(columns, rows)
    for line in lines:
        click.echo(line)
    for note in notes:
        report(note)


def table_lines(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[str]]:
    """The lines of a table, and notes for the user about it.

    On a terminal, it has colours, fits the width, and has no empty columns. Elsewhere it is plain, has all
    columns, and `-` marks an empty cell.
    """
    import shutil

    from castoff.launcher.text.layout import state_cell, table  # late: most verbs print no table

    on_terminal, has_colour = is_terminal(sys.stdout), has_colours()
    nothing = "" if on_terminal else "-"
    cells = [[state_cell(printable(text) or nothing) for text in row] for row in rows]
    laid_out = table(columns, cells, shutil.get_terminal_size().columns if on_terminal else None)
    lines = []
    for line in laid_out.lines:
        codes = [_SGR[span.style] if has_colour and span.style else "" for span in line]
        texts = [
            f"\x1b[{code}m{span.text}\x1b[0m" if code else span.text
            for code, span in zip(codes, line, strict=True)
        ]
        lines.append("".join(texts).rstrip())
    hidden = laid_out.hidden
    words = f"{counted(len(hidden), 'column')} hidden: {', '.join(hidden)}; a wider terminal shows all"
    return lines, [words] if hidden else []


def parameter_columns(names: Sequence[str], *, goes: int) -> list[Column]:
    """The columns of parameters. `goes`: see `Column`; the last parameter is hidden first."""
    from castoff.launcher.text.layout import Column
    from castoff.launcher.text.shortened import cut_middles

    order = range(goes + len(names) - 1, goes - 1, -1)
    return [Column(name, at, least=8, shorten=cut_middles) for at, name in zip(order, names, strict=True)]


def ending_words(run: RunStatus, already: str = "") -> str:
    """A run's state, and its ending if that differs."""
    return f"{run.state}{already}" + (f", {run.ending}" if run.ending not in (None, run.state) else "")


def duration(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """The callback of an option that takes a duration as in job files: convert it to seconds."""
    if value is None or re.search(DURATION_PATTERN, value):
        return None if value is None else seconds(value)
    raise click.BadParameter(f"is {value!r}, but takes {DURATION_TAKES}{meant_duration(value)}")


_UNITS = {"s": "s", "m": "m", "min": "m", "h": "h", "hr": "h", "d": "d", "day": "d", "hour": "h"}
_UNITS |= {"sec": "s", "second": "s", "minute": "m"}
_DAYS = {"w": 7, "week": 7, "month": 30, "y": 365, "year": 365}


def meant_duration(text: str) -> str:
    """`; use 2h` for `2 hours`; empty if the text is not a number with a unit."""
    match = re.fullmatch(r"([0-9]{1,4})[ -]?([a-z]+?)s?", text.strip().lower())
    if match and (unit := _UNITS.get(match[2] or "s")):
        return f"; use {match[1]}{unit}"
    return f"; use {int(match[1]) * _DAYS[match[2]]}d" if match and match[2] in _DAYS else ""


_DAYS_AGO = {"today": 0, "yesterday": 1}
_DATES = ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S")


def age(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """The callback of an option that takes an age or a date: convert it to seconds before now."""
    if value is None or re.search(DURATION_PATTERN, value):
        return None if value is None else seconds(value)
    from datetime import datetime, timedelta  # late: few commands name a date

    now, begun = datetime.now(), None
    if (days := _DAYS_AGO.get(value.lower())) is not None:
        begun = now.replace(hour=0, minute=0, second=0) - timedelta(days)
    for form in _DATES:
        try:
            begun = begun or datetime.strptime(value, form)
        except ValueError:
            continue
    if begun is None:
        takes = "an age, as 90s, 12h or 7d, or a date: 2026-11-01, today or yesterday"
        raise click.BadParameter(f"is {value!r}, but takes {takes}{meant_duration(value)}")
    if begun > now:
        raise click.BadParameter(f"is {value!r}, which is in the future")
    return int(now.timestamp() - begun.timestamp())
