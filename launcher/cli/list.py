"""castoff list: list your runs."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click
import msgspec

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.output import (
    age,
    brief,
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
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import ENDINGS, RunStatus, members_words
from castoff.launcher.runs.sweep import may_have, sweep_words
from castoff.launcher.status.overview import Overview, Row, adopt_unlisted, alone_in, rebuild
from castoff.launcher.status.poller import AT_A_GLANCE, Poller
from castoff.launcher.status.survey import RunRecords
from castoff.launcher.status.watch import judge
from castoff.launcher.text.layout import Column
from castoff.launcher.text.shortened import cut, cut_ids
from castoff.launcher.text.words import counted

_NEWEST = 20
"""Number of ended runs that are listed by default."""

_STATES = ("pending", "running", "ended", *reversed(ENDINGS))

_COLUMNS = (
    Column("run", least=16, shorten=cut_ids),
    Column("site", goes=4, if_alike=False),
    Column("state"),
    Column("code", goes=2),
    Column("attempts", goes=1),
    Column("age", goes=7),
    Column("took", goes=3),
    Column("members", goes=6, least=12),
    Column("matching", goes=8, least=12),
    Column("parameters", goes=5, least=16),
    Column("why", goes=9, least=28),
)

_OPTIONAL = ("matching", "parameters")
"""Columns that a list has only if a run needs them."""

_PARAMETERS = 40
"""Limit of characters for parameters."""

_READ = 100
"""Limit of members up to which the records of a run that is over are read for its matching members."""


def _own(_context: click.Context, _option: click.Parameter, user: str | None) -> None:
    """Accept the user's own name: there are no other users' runs in the list."""
    from getpass import getuser  # late: few lists name a user

    if user is not None and user != getuser():
        raise click.BadParameter(f"is {user!r}, but the list holds your own runs only; here: castoff list")


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
    "--since",
    callback=age,
    metavar="AGE",
    help="Only runs submitted within the last AGE, as 7d, or since a date, as yesterday or 2026-11-01.",
)
@click.option(
    "--with",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="Only runs with members that have this parameter, and these members' states, as lr=1e-3; may be "
    "repeated.",
)
@click.option(
    "--scan",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="First add runs in this folder and below that the list lacks.",
)
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), metavar="N", help="Only the N newest of these runs."
)
@click.option("-u", "--user", callback=_own, expose_value=False, hidden=True)  # as for squeue
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
    limit: int | None,
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
    newest = None if everything or as_json else limit or _NEWEST
    choice = _Choice(states, name, since, parameters, newest, limit)
    poller = Poller(AT_A_GLANCE)
    if watch:
        _watch(index, choice, poller, interval, as_json=as_json)
    found = choice.look(index, poller)
    if as_json:
        print_json(*found.plain())
    lines, notes = ([], found.notes) if as_json else found.table()
    for line in lines:
        click.echo(line)
    for note in notes:
        report(note)


class _Found(NamedTuple):
    """The selected runs at one moment, and messages about them."""

    rows: list[Row]
    matching: list[Matching | None]
    """The members of each run that were selected by their parameters; None: all."""
    why_none: str
    """The message if no run is selected."""
    notes: list[str]
    """Messages for the user."""
    time: float

    def table(self) -> tuple[list[str], list[str]]:
        """The runs as lines, and the notes for the user; no lines if there are no runs."""
        if not self.rows:
            return [], [self.why_none, *self.notes]
        cells = [_cells(*of_run, self.time) for of_run in zip(self.rows, self.matching, strict=True)]
        shown = [
            index
            for index, column in enumerate(_COLUMNS)
            if column.heading not in _OPTIONAL or any(row[index] for row in cells)
        ]
        rows = [[row[index] for index in shown] for row in cells]
        lines, notes = table_lines([_COLUMNS[index] for index in shown], rows)
        return lines, [*notes, *self.notes]

    def plain(self) -> list[dict[str, Any]]:
        """The runs as plain data."""
        return [_plain(row, matching) for row, matching in zip(self.rows, self.matching, strict=True)]


class _Choice(NamedTuple):
    """The user's selection of runs."""

    states: tuple[str, ...]
    name: str | None
    since: int | None
    parameters: tuple[str, ...]
    """Selectors of members, as `lr=1e-3`."""
    newest: int | None
    """Number of ended runs to list; None: all."""
    limit: int | None
    """Number of runs to list, newest first; None: all."""

    def look(self, index: Index, poller: Poller) -> _Found:
        """Query the current states, and return the selected runs."""
        names = () if self.name is None else (self.name,)
        overview, now = Overview.asked(index, names=names, poller=poller), time.time()

        def wanted(row: Row) -> bool:
            summary = row.summary
            return (not self.states or summary.state in self.states or summary.ending in self.states) and (
                (self.since is None or now - row.submitted <= self.since)
                and (not self.parameters or bool(self._members(row)))
            )

        rows, left_out = overview.choose(wanted, self.newest)
        if self.limit is not None:
            rows, left_out = rows[-self.limit :], 0
        older = [f"{left_out} older runs are over and not shown; --all shows them"] if left_out else []
        rows = [
            row._replace(
                summary=explained(row.summary, row.entry.path, overview.statuses.get(row.entry.path))
            )
            for row in rows
        ]
        matching = [
            Matching.among(row, self._members(row), overview.statuses.get(row.entry.path))
            if self.parameters
            else None
            for row in rows
        ]
        return _Found(rows, matching, self._why_none(overview.known), [*overview.notes, *older], now)

    def _members(self, row: Row) -> frozenset[int]:
        """The members of a run that have the parameters."""
        if not may_have(row.entry.parameters, pairs(self.parameters)):
            return frozenset()
        return _members(row.entry.path, self.parameters)

    def _why_none(self, count: int) -> str:
        if self.states or self.name is not None or self.since is not None or self.parameters:
            return "no such runs"
        if count:
            return "the directories of all runs are gone; --scan FOLDER finds those that were moved there"
        return "no runs yet; --scan FOLDER finds those in a folder"


@functools.cache
def _members(path: str, parameters: tuple[str, ...]) -> frozenset[int]:
    """The members of a run that have these parameters, which never change."""
    try:
        run = RunDirectory(Path(path))
        return frozenset(parameters_of(run).selected(run.id, parameters))
    except CastoffError:  # no such member; or the directory is gone or not trusted
        return frozenset()


class Matching(NamedTuple):
    """The members of a run that were selected by their parameters."""

    members: int
    counts: dict[str, int]
    """How many of them have each ending or state; empty if finding that out would take long."""

    @classmethod
    def among(cls, row: Row, members: frozenset[int], status: RunStatus | None) -> Matching:
        """The selected members of a run. `status`: the run's full status, if it was read already."""
        summary = row.summary
        if status is None and len(summary.counts) == 1:
            return cls(len(members), dict.fromkeys(summary.counts, len(members)))
        try:
            if status is None and summary.members <= _READ:
                (status,) = judge([RunRecords(row.entry.run)])
        except CastoffError:  # since its end, its directory lost our trust, or its records were damaged
            return cls(len(members), {})
        words = (one.word for one in status.members if one.member in members) if status else ()
        return cls(len(members), dict(Counter(words)))

    @property
    def words(self) -> str:
        """Their states, or else their number."""
        return members_words(self.counts) if self.counts else counted(self.members, "member")


def _watch(index: Index, choice: _Choice, poller: Poller, interval: float, *, as_json: bool) -> NoReturn:
    """Print the runs again and again, until Ctrl-C."""
    from castoff.launcher.cli.follow import pause  # late: only --watch needs these
    from castoff.launcher.cli.repeated import Repeated

    screen, printed = Repeated(), dict[str, dict[str, Any]]()
    while True:
        found = choice.look(index, poller)
        if as_json:
            facts = {fact["directory"]: fact for fact in found.plain()}
            print_json(*(fact for path, fact in facts.items() if printed.get(path) != fact))
            sys.stdout.flush()
            printed = facts
        else:
            lines, notes = found.table()
            heading = f"{moment(found.time)}, every {interval:g} s; Ctrl-C ends this"
            screen.print(heading, [*lines, *(f"castoff: {printable(note)}" for note in notes)])
        pause(interval)


def _scan(index: Index, folder: Path) -> None:
    rebuilt = rebuild(index, folder)
    for note in rebuilt.notes:
        report(note)
    report(f"{folder}: {counted(rebuilt.found, 'run')} found, {rebuilt.new or 'none'} new")


def _plain(row: Row, matching: Matching | None) -> dict[str, Any]:
    """A run as plain data; what does not apply is left out."""
    facts: dict[str, Any] = {"id": row.entry.id, "directory": row.entry.path}
    if row.entry.group is not None:
        facts["group"] = row.entry.group
    if sweep := row.entry.parameters:
        facts["parameters"] = {
            name: {"count": swept.count, "values": swept.typed} for name, swept in sweep.items()
        }
    if matching is not None:
        facts["matching"] = matching._asdict()
    return {**facts, **msgspec.structs.asdict(row.summary)}


def _cells(row: Row, matching: Matching | None, now: float) -> tuple[str, ...]:
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
        matching.words if matching else "",
        cut(sweep_words(row.entry.parameters), _PARAMETERS),
        words.why,
    )
