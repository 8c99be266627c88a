"""castoff usage: sum the node-hours of runs, by account, queue and ending."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.output import age, json_option, print_json, print_table, report
from castoff.launcher.errors import CastoffError
from castoff.launcher.history.usage import Share, Total, shares, total
from castoff.launcher.runs.index import Entry, Index
from castoff.launcher.status.overview import adopt_unlisted, alone_in
from castoff.launcher.status.poller import AT_A_GLANCE, Poller
from castoff.launcher.status.survey import RunRecords
from castoff.launcher.status.watch import judge
from castoff.launcher.text.layout import Column
from castoff.launcher.text.words import counted

_COLUMNS = (
    Column("site", goes=4),
    Column("account", goes=3),
    Column("queue", goes=2),
    Column("ending"),
    Column("starts", goes=1),
    Column("requested node-h"),
    Column("used node-h"),
)

_Key = tuple[str, str, str, str]


@click.command("usage", epilog=examples("castoff usage --since 30d", "castoff usage --name 'train*' --json"))
@click.option(
    "--since", callback=age, metavar="AGE", help="Only starts within the last AGE, as 30d, or since a date."
)
@click.option("--name", metavar="NAME", help="Only runs of this name; * matches anything.")
@json_option
def command(since: int | None, name: str | None, as_json: bool) -> None:
    """Sum the node-hours of your runs, requested and used, by site, account, queue and ending.

    Each start of a job counts: requested are its nodes for its walltime, used its nodes from its start to its
    end, or until now. Runs whose directories were removed are not counted.
    """
    adopt_unlisted(os.environ, alone_in(Path()))
    now = time.time()
    counted_starts = [
        *_shares(Index.of(os.environ).entries(), name, 0.0 if since is None else now - since, now)
    ]
    if not counted_starts:
        report("none of these runs has started; `castoff list` shows your runs")
    rows = sorted(_grouped(counted_starts).items(), key=lambda row: (row[0][:3], -row[1].used))
    if as_json:
        print_json(*(_plain(key, summed) for key, summed in rows))
        return
    if counted_starts:
        cells = [(*key, *_cells(summed)) for key, summed in rows]
        if len(rows) > 1:
            cells.append(("total", "", "", "", *_cells(total(counted_starts))))
        print_table(_COLUMNS, cells)
    _explain(total(counted_starts))


def _shares(entries: Iterable[Entry], name: str | None, since: float, now: float) -> Iterator[Share]:
    """The node-hours of each start of these runs. Runs that cannot be read are reported on standard error."""
    records = []
    for entry in entries:
        if (name is not None and not fnmatchcase(entry.name, name)) or not entry.is_there:
            continue
        if entry.ended and entry.ended.ended and entry.ended.ended < since:
            continue
        try:
            records.append(RunRecords(entry.run))
        except CastoffError as error:
            report(f"not counted: {error}")
    for run, status in zip(records, judge(records, Poller(AT_A_GLANCE)), strict=True):
        yield from shares(status, run.plan, at=now, since=since)


def _grouped(counted_starts: Iterable[Share]) -> dict[_Key, Total]:
    groups: dict[_Key, list[Share]] = {}
    for share in counted_starts:
        groups.setdefault((share.site, share.account, share.queue, share.ending), []).append(share)
    return {key: total(group) for key, group in groups.items()}


def _cells(summed: Total) -> tuple[str, str, str]:
    requested = "" if summed.unbounded == summed.starts else _hours(summed.requested)
    used = "" if summed.unknown == summed.starts else _hours(summed.used)
    return str(summed.starts), requested, used


def _hours(count: float) -> str:
    return f"{count:,.2f}" if count >= 1 else f"{count:.2g}"


def _plain(key: _Key, summed: Total) -> dict[str, Any]:
    names = (column.heading for column in _COLUMNS)
    return {**dict(zip(names, key, strict=False)), **summed._asdict()}


def _explain(summed: Total) -> None:
    """Report what the sums do not include."""
    if summed.unbounded and summed.unbounded < summed.starts:
        report(f"requested does not include {counted(summed.unbounded, 'start')} without a walltime")
    if summed.unknown:
        report(f"used does not include {counted(summed.unknown, 'start')} whose end is unknown")
