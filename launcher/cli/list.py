"""castoff list: list your runs."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click
import msgspec

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.output import (
    brief,
    duration,
    interval_option,
    json_option,
    moment,
    print_json,
    report,
    table_lines,
)
from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.history.listing import explained, run_words
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.parameters import pairs, parameters_of
from castoff.launcher.runs.states import ENDINGS
from castoff.launcher.status.overview import Overview, Row, adopt_unlisted, alone_in, rebuild
from castoff.launcher.status.poller import AT_A_GLANCE, Poller
from castoff.launcher.text.layout import cut
from castoff.launcher.text.words import counted

_NEWEST = 20
"""Number of ended runs that are listed by default."""

_STATES = ("pending", "running", "ended", *reversed(ENDINGS))

_HEADINGS = ("run", "site", "state", "code", "attempts", "age", "took", "members", "why")

_DISPENSABLE = ("why", "attempts", "site", "code", "took", "members", "age")
"""Columns that a narrow terminal omits, because `castoff status` shows them."""


_FLEXIBLE = {"why": 24}
"""Columns that a narrow terminal shortens, and the number of characters that remain."""

_WHY = 100
"""Limit of characters for the reason why a run is waiting or failed."""


@click.command(
    "list",
    epilog=examples(
        "castoff list --state running",
        "castoff list --name 'train*' --since 7d",
        "castoff list --watch --interval 10s",
    ),
)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help=f"All runs, not only active ones and the {_NEWEST} newest that are over.",
)
@click.option(
    "--state",
    "states",
    type=click.Choice(_STATES),
    multiple=True,
    metavar="WORD",
    help="Only runs in this state or with this ending, as running or failed; may be repeated.",
)
@click.option(
    "--name", metavar="NAME", help="Only runs of this name, or of such a group; * matches anything."
)
@click.option(
    "--since", callback=duration, metavar="AGE", help="Only runs submitted within the last AGE, as 7d."
)
@click.option(
    "--with",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="Only runs with a member that has this parameter, as lr=1e-3; may be repeated.",
)
@click.option(
    "--scan",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="First add runs in this folder and below that the list lacks.",
)
@click.option("--watch", is_flag=True, help="Repeat at intervals, until Ctrl-C.")
@interval_option
@json_option
def command(
    everything: bool,
    states: tuple[str, ...],
    name: str | None,
    since: int | None,
    parameters: tuple[str, ...],
    scan: Path | None,
    watch: bool,
    interval: float,
    as_json: bool,
) -> None:
    """List your runs, the newest last; with --json all of them.

    Runs in the working directory that were submitted without castoff are added first. With --watch, the list
    is updated in place on a terminal, else printed repeatedly; with --json, only the runs that changed.
    """
    index = Index.of(os.environ)
    if scan is not None:
        _scan(index, scan)
    adopt_unlisted(os.environ, alone_in(Path()))
    pairs(parameters)  # reports a word that is none
    choice = _Choice(states, name, since, parameters, None if everything or as_json else _NEWEST)
    poller = Poller(AT_A_GLANCE)
    if watch:
        _watch(index, choice, poller, interval, as_json=as_json)
    found = choice.look(index, poller)
    if as_json:
        print_json(*map(_plain, found.rows))
    for line in [] if as_json else found.table():
        click.echo(line)
    for note in found.notes if found.rows or as_json else [found.why_none, *found.notes]:
        report(note)


class _Found(NamedTuple):
    """The selected runs at one moment, and messages about them."""

    rows: list[Row]
    why_none: str
    """The message if no run is selected."""
    notes: list[str]
    """Messages for the user."""
    time: float

    def table(self) -> list[str]:
        """The runs as lines; empty if there are none."""
        cells = [_cells(row, self.time) for row in self.rows]
        if not cells:
            return []
        return table_lines(_HEADINGS, cells, dispensable=_DISPENSABLE, flexible=_FLEXIBLE)


class _Choice(NamedTuple):
    """The user's selection of runs."""

    states: tuple[str, ...]
    name: str | None
    since: int | None
    parameters: tuple[str, ...]
    """Selectors of members, as `lr=1e-3`."""
    newest: int | None
    """Number of ended runs to list; None: all."""

    def look(self, index: Index, poller: Poller) -> _Found:
        """Query the current states, and return the selected runs."""
        names = () if self.name is None else (self.name,)
        overview, now = Overview.asked(index, names=names, poller=poller), time.time()

        def wanted(row: Row) -> bool:
            summary = row.summary
            return (not self.states or summary.state in self.states or summary.ending in self.states) and (
                (self.since is None or now - row.submitted <= self.since)
                and (not self.parameters or _has_member(row, self.parameters))
            )

        rows, left_out = overview.choose(wanted, self.newest)
        older = [f"{left_out} older runs are over and not shown; --all shows them"] if left_out else []
        rows = [
            row._replace(
                summary=explained(row.summary, row.entry.path, overview.statuses.get(row.entry.path))
            )
            for row in rows
        ]
        return _Found(rows, self._why_none(overview.known), [*overview.notes, *older], now)

    def _why_none(self, count: int) -> str:
        if self.states or self.name is not None or self.since is not None or self.parameters:
            return "no such runs"
        if count:
            return "the directories of all runs are gone; --scan FOLDER finds those that were moved there"
        return "no runs yet; --scan FOLDER finds those in a folder"


def _has_member(row: Row, parameters: tuple[str, ...]) -> bool:
    """Whether a run has a member with these parameters."""
    try:
        return bool(parameters_of(row.entry.run).selected(row.entry.id, parameters))
    except CastoffError:  # no such member; or the directory is gone or not trusted
        return False


def _watch(index: Index, choice: _Choice, poller: Poller, interval: float, *, as_json: bool) -> NoReturn:
    """Print the runs again and again, until Ctrl-C."""
    from castoff.launcher.cli.follow import pause  # late: only --watch needs these
    from castoff.launcher.cli.repeated import Repeated

    screen, printed = Repeated(), dict[str, dict[str, Any]]()
    while True:
        found = choice.look(index, poller)
        if as_json:
            facts = {row.entry.path: _plain(row) for row in found.rows}
            print_json(*(fact for path, fact in facts.items() if printed.get(path) != fact))
            sys.stdout.flush()
            printed = facts
        else:
            notes = found.notes if found.rows else [found.why_none, *found.notes]
            heading = f"{moment(found.time)}, every {interval:g} s; Ctrl-C ends this"
            screen.print(heading, [*found.table(), *(f"castoff: {printable(note)}" for note in notes)])
        pause(interval)


def _scan(index: Index, folder: Path) -> None:
    rebuilt = rebuild(index, folder)
    for note in rebuilt.notes:
        report(note)
    report(f"{folder}: {counted(rebuilt.found, 'run')} found, {rebuilt.new or 'none'} new")


def _plain(row: Row) -> dict[str, Any]:
    group = {} if row.entry.group is None else {"group": row.entry.group}
    return {"id": row.entry.id, "directory": row.entry.path, **group, **msgspec.structs.asdict(row.summary)}


def _cells(row: Row, now: float) -> tuple[str, ...]:
    summary = row.summary
    words = run_words(summary, now)
    return (
        row.entry.id,
        summary.site,
        words.state,
        "" if summary.code is None else str(summary.code),
        str(summary.attempts) if summary.attempts > summary.members else "",
        brief(now - row.submitted),
        words.took,
        words.members,
        cut(words.why, _WHY),
    )
