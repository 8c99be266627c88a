"""castoff list: list your runs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import click
import msgspec

from launcher.cli.help import examples
from launcher.cli.output import brief, duration, json_option, print_json, print_table, report, several
from launcher.runs.index import Index
from launcher.runs.states import ENDINGS, FAILED, members_words
from launcher.status.overview import Overview, Row, adopt_unlisted, alone_in, rebuild
from launcher.status.poller import AT_A_GLANCE, Poller

_NEWEST = 20
"""How many runs that are over fit a glance."""

_STATES = ("pending", "running", "ended", *reversed(ENDINGS))

_HEADINGS = ("run", "site", "state", "code", "attempts", "age", "took", "members", "why")

_DISPENSABLE = ("why", "attempts", "site", "code", "took", "members", "age")
"""What a narrow terminal goes without: `castoff status` shows it, too."""


_WHY = 100
"""Characters of why a run failed."""


@click.command(
    "list",
    epilog=examples(
        "castoff list --state running",
        "castoff list --name 'train*' --since 7d",
    ),
)
@click.option(
    "--all", "everything", is_flag=True, help=f"Not only the {_NEWEST} newest and those that are not over."
)
@click.option(
    "--state",
    "states",
    type=click.Choice(_STATES),
    multiple=True,
    metavar="WORD",
    help="Only runs in this state or with this ending, as running or failed; may be repeated.",
)
@click.option("--name", metavar="NAME", help="Only runs of this name; * matches anything.")
@click.option("--since", callback=duration, metavar="AGE", help="Only runs submitted so long ago, as 7d.")
@click.option(
    "--scan",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="First find the runs in a folder and below, and add those that are missing here.",
)
@json_option
def command(
    everything: bool,
    states: tuple[str, ...],
    name: str | None,
    since: int | None,
    scan: Path | None,
    as_json: bool,
) -> None:
    """List your runs, the newest last; with --json all of them.

    Those in the working directory whose scripts stood alone are added first.
    """
    index = Index.of(os.environ)
    if scan is not None:
        _scan(index, scan)
    adopt_unlisted(os.environ, alone_in(Path()))
    overview = Overview.asked(index, names=() if name is None else (name,), poller=Poller(AT_A_GLANCE))
    now = time.time()

    def wanted(row: Row) -> bool:
        summary = row.summary
        return (not states or summary.state in states or summary.ending in states) and (
            since is None or now - row.submitted <= since
        )

    rows, left_out = overview.choose(wanted, None if everything or as_json else _NEWEST)
    if as_json:
        print_json(*map(_plain, rows))
    elif rows:
        print_table(_HEADINGS, [_cells(row, now) for row in rows], dispensable=_DISPENSABLE)
    elif states or name is not None or since is not None:
        report("no such runs")
    elif overview.known:
        report("the directories of all runs are gone; --scan FOLDER finds those that were moved there")
    else:
        report("no runs yet; --scan FOLDER finds those in a folder")
    for one in overview.notes:
        report(one)
    if left_out:
        report(f"{left_out} older runs are over and not shown; --all shows them")


def _scan(index: Index, folder: Path) -> None:
    rebuilt = rebuild(index, folder)
    for one in rebuilt.notes:
        report(one)
    report(f"{folder}: {several(rebuilt.found, 'run')} found, {rebuilt.new or 'none'} new")


def _plain(row: Row) -> dict[str, Any]:
    return {"id": row.entry.id, "directory": row.entry.path, **msgspec.structs.asdict(row.summary)}


def _cells(row: Row, now: float) -> tuple[str, ...]:
    summary = row.summary
    until = summary.ended if row.summary.over else now
    word = (summary.ending if summary.state == "ended" else None) or summary.state
    return (
        row.entry.id,
        summary.site,
        "stopping" if summary.stop_requested else word,
        "" if summary.code is None else str(summary.code),
        str(summary.attempts) if summary.attempts > summary.members else "",
        brief(now - row.submitted),
        brief(until - summary.started) if until and summary.started else "",
        members_words(summary.counts) if summary.members > 1 else "",
        _short(summary.reason or "") if summary.ending in FAILED else "",
    )


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _WHY else f"{text[: _WHY - 1]}…"
