"""Options by which verbs select runs: a reference, or a pattern of names."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from castoff.launcher.cli.offers import F, complete_runs
from castoff.launcher.errors import CastoffError, report
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.status.overview import Overview


def run_options(function: F) -> F:
    """Add RUNS and --name."""
    function = click.option(
        "--name",
        "names",
        multiple=True,
        metavar="NAME",
        help="Also all runs of this name that are not over; * matches anything.",
    )(function)
    return click.argument("runs", nargs=-1, shell_complete=complete_runs)(function)


def run_meant(run: str | None) -> RunDirectory:
    """The run with this reference; without one, the newest run, which is reported on standard error.

    Only for verbs that read: a verb that ends a run needs its name.

    Raises:
        CastoffError: no such run, or its directory may not be used.
    """
    index = Index.of(os.environ)
    if run is not None:
        return index.find(run)
    newest = index.newest()
    report(f"{newest.id}: the newest run")
    return newest


def runs_meant(runs: Sequence[str], names: Sequence[str], *, newest_too: bool = False) -> list[RunDirectory]:
    """The runs with these references, and the runs whose names match; each once.

    Runs selected by name are active ones; with `newest_too`, also the newest run of each name if it is over.

    Raises:
        CastoffError: no such run, or its directory may not be used.
        click.UsageError: neither references nor names are given.
    """
    if not runs and not names:
        click.get_current_context().fail(
            "missing argument 'RUNS...', or --name NAME; `castoff list` shows your runs"
        )
    index = Index.of(os.environ)
    selected = {run.path: run for run in index.find_all(runs)}
    if names:
        overview = Overview.asked(index, names=names)
        for note in overview.notes:
            report(note)
        rows, _ = overview.choose()
        if not rows:
            raise CastoffError(f"there are no runs of such a name: {', '.join(names)}")
        newest = {row.summary.name: row for row in rows} if newest_too else {}
        for row in rows:
            if row.summary.state != "ended" or newest.get(row.summary.name) is row:
                selected[row.run.path] = row.run
        if not selected:
            report(f"no active run has such a name: {', '.join(names)}")
    return list(selected.values())
