"""castoff wait: wait until runs are over; exit with their code."""

from __future__ import annotations

import sys

import click
import msgspec

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.output import is_terminal, json_option, print_json, report
from castoff.launcher.cli.run_options import run_meant, run_options, runs_meant
from castoff.launcher.runs.states import NOT_RESUMED, RunStatus
from castoff.launcher.status.watch import check_over, poll


@click.command(
    "wait",
    epilog=examples(
        "castoff wait",
        "castoff wait train --timeout 3600 && castoff logs train",
    ),
)
@run_options
@click.option(
    "--timeout", type=click.FloatRange(min=0), help="Give up after so many seconds (exit code 124)."
)
@json_option
def command(runs: tuple[str, ...], names: tuple[str, ...], timeout: float | None, as_json: bool) -> int:
    """Wait until runs are over, and exit with their code: the first that is not 0, in the order given.

    Without RUNS, the newest run is meant. A run whose ending is unknown counts as 1, and so does one that
    never begins, since what it waits for can never happen. With --name, the newest run of each such name
    counts also if it is over.
    """
    shown_last: dict[str, str] = {}  # what was said last of each run
    meant = runs_meant(runs, names, newest_too=True) if runs or names else [run_meant(None)]
    for now in poll(meant, timeout):
        for one in now:
            words = f"{one.id}: {_words(one)}"
            if shown_last.get(one.directory) == words:
                continue
            shown_last[one.directory] = words
            if not (one.over or one.never_begins):
                if is_terminal(sys.stderr):
                    report(words)
            elif as_json:
                print_json(msgspec.to_builtins(one))
            else:
                click.echo(words)
    check_over(now, timeout)
    return next((code for one in now if (code := 1 if one.code is None else one.code)), 0)


def _words(now: RunStatus) -> str | None:
    if now.never_begins:
        return f"never begins: {now.reason}; `castoff cancel {now.id}` takes it out of the queue"
    if now.over and now.ending in NOT_RESUMED and now.reason:
        return f"{now.ending}: {now.reason}"
    return now.ending if now.over else now.state
