"""castoff wait: wait until runs are over; exit with their code."""

from __future__ import annotations

import sys

import click
import msgspec

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.output import duration, is_terminal, json_option, print_json, report
from castoff.launcher.cli.run_options import groups_meant, report_unsent, run_meant, run_options, runs_meant
from castoff.launcher.config.quantities import timeout
from castoff.launcher.runs.states import RunStatus
from castoff.launcher.status.group_states import first_code
from castoff.launcher.status.watch import check_over, poll


def _seconds(context: click.Context, option: click.Parameter, value: str | None) -> float | None:
    """Convert the value of --timeout, in which a number without a unit is one of seconds."""
    try:
        return None if value is None else timeout(value)
    except ValueError:
        return duration(context, option, value)  # raises the error


@click.command(
    "wait",
    epilog=examples(
        "castoff wait",
        "castoff wait train --timeout 2h && castoff logs train",
    ),
)
@run_options()
@click.option(
    "--timeout",
    "limit",
    callback=_seconds,
    metavar="TIME",
    help="Give up after TIME, as 90s or 2h (exit code 124).",
)
@json_option
def command(runs: tuple[str, ...], names: tuple[str, ...], limit: float | None, as_json: bool) -> int:
    """Wait until runs are over, and exit with their code: the first that is not 0, in the order given.

    Without RUNS, the newest run is meant. A run whose ending is unknown counts as 1, and so does a run that
    can never begin because of its dependency. With --name, the newest run of each such name counts also if it
    is over. A group is over when all of its runs are; those that wait for a failure that did not happen do
    not count.
    """
    shown_last: dict[str, str] = {}  # the last line printed for each run
    meant = runs_meant(runs, names, newest_too=True) if runs or names else [run_meant(None)]
    groups, _ = groups_meant(runs)
    unsent = report_unsent(groups)
    states: list[RunStatus] = []
    for states in poll(meant, limit) if meant else ():
        for run in states:
            words = f"{run.id}: {_words(run)}"
            if shown_last.get(run.directory) == words:
                continue
            shown_last[run.directory] = words
            if not (run.over or run.never_begins):
                if is_terminal(sys.stderr):
                    report(words)
            elif as_json:
                print_json(msgspec.to_builtins(run))
            else:
                click.echo(words)
    check_over(states, limit)
    return first_code(states, groups) or int(unsent)


def _words(run: RunStatus) -> str | None:
    if run.never_begins:
        return f"never begins: {run.reason}; `castoff cancel {run.id}` takes it out of the queue"
    if run.over and run.reason:
        return f"{run.ending}: {run.reason}"
    return run.ending if run.over else run.state
