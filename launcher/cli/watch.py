"""castoff watch: send the messages about runs that their jobs could not send."""

from __future__ import annotations

import contextlib
import os

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.output import report
from castoff.launcher.cli.run_options import run_options, runs_meant
from castoff.launcher.errors import CastoffError


@click.command(
    "watch",
    epilog=examples(
        "castoff watch",
        "nohup castoff watch >watch.log 2>&1 &",
    ),
)
@run_options(only_active=True)
def command(runs: tuple[str, ...], names: tuple[str, ...]) -> None:
    """Send the messages that jobs with `notify` could not send themselves.

    A job that its scheduler ends, as at the walltime, sends none, and many compute nodes reach no server.
    Start this on a login node, in tmux or with nohup. It watches all runs with `notify`, also those that are
    submitted later, or only RUNS, and ends when none is left.
    """
    from castoff.launcher.notify.watching import Watcher, alone, watched_run

    meant = runs_meant(runs, names, newest_too=True) if runs or names else []
    for run in meant:
        if not watched_run(run):
            raise CastoffError(f"{run.id}: its job has no `notify`, so no message is due")
    watcher = Watcher(os.environ, [run.path for run in meant], click.echo)
    with contextlib.nullcontext() if meant else alone(os.environ):
        watcher.watch()
    report("no run with `notify` is pending or running; `castoff top` shows all your runs")
