"""castoff logs: print a run's logs, or follow them."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from castoff.launcher.cli.follow import follow_run, write
from castoff.launcher.cli.help import examples
from castoff.launcher.cli.offers import complete_runs
from castoff.launcher.cli.output import has_colours, json_option, print_json, report
from castoff.launcher.cli.run_options import part_meant, selectors_argument
from castoff.launcher.logs.failures import failed_rank
from castoff.launcher.logs.printing import write_logs
from castoff.launcher.logs.show import failure_facts
from castoff.launcher.logs.sources import Selection, attempts_of, check_ranks, rank_logs
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import AttemptStatus
from castoff.launcher.status.poller import AT_A_GLANCE, Poller
from castoff.launcher.status.watch import status

_NUMBER = click.IntRange(min=0)


@click.command(
    "logs",
    epilog=examples(
        "castoff logs -f", "castoff logs train --rank 0 --tail 20", "castoff logs sweep lr=1e-3,seed=2"
    ),
)
@click.argument("run", required=False, shell_complete=complete_runs)
@selectors_argument()
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the run is over.")
@click.option("-n", "--tail", type=_NUMBER, metavar="N", help="Only the last N lines of each log.")
@click.option("--rank", "ranks", type=_NUMBER, multiple=True, help="Only this rank's log.")
@click.option(
    "--member", "members", type=_NUMBER, multiple=True, help="Only this member of an array; default: all."
)
@click.option("--attempt", type=_NUMBER, help="Only this attempt; default: the newest; with -f, all.")
@json_option
def command(
    run: str | None,
    selectors: tuple[str, ...],
    follow: bool,
    tail: int | None,
    ranks: tuple[int, ...],
    members: tuple[int, ...],
    attempt: int | None,
    as_json: bool,
) -> int:
    """Print a run's logs: the first rank that failed comes first, then all ranks' lines.

    RUN is an id, the beginning of one, a name (its newest run), a scheduler's id or a directory; without
    it, the newest run is meant. Of a group, the logs of each run are printed, or followed together.
    NAME=VALUE selects members by their parameters, as in lr=1e-3,seed=2. --rank and --member may be repeated.
    With -f, new lines are shown as they are written, and the exit code is the run's. With --json, the paths
    of the logs are printed; with -f too, each line.
    """
    if run is not None and (group := Index.of(os.environ).group(run)):
        from castoff.launcher.cli.group_logs import follow_group, print_group_logs

        given = {"--rank": ranks, "--member": members or selectors, "--attempt": attempt is not None}
        for option in (option for option, is_given in given.items() if is_given):
            click.get_current_context().fail(f"{option} takes one run, and {run} is a group of runs")
        if follow:
            return follow_group(group, tail, as_json=as_json)
        return print_group_logs(group, tail, _places, as_json=as_json)
    directory, chosen = part_meant(run, selectors, members)
    selection = Selection(chosen, attempt, frozenset(ranks), tail)
    if note := check_ranks(directory, selection):
        report(note)
    if follow:
        return follow_run(directory, selection, as_json=as_json)
    attempts = attempts_of(directory, status(directory, Poller(AT_A_GLANCE)), selection)
    if as_json:
        print_json(_places(directory, attempts))
    else:
        write_logs(directory, attempts, selection, write, terminal=sys.stdout.isatty(), colours=has_colours())
    return 0


def _places(run: RunDirectory, attempts: list[tuple[int, AttemptStatus]]) -> dict[str, Any]:
    """The log files and the failure of each attempt, as JSON."""
    rows = []
    for member, attempt in attempts:
        logs = rank_logs(run, member, attempt.attempt)
        failed = failed_rank(run, member, attempt)
        rows.append(
            {
                "member": member,
                "attempt": attempt.attempt,
                "state": attempt.state,
                "ending": attempt.ending,
                "script": str(run.script_log(member)),
                "ranks": [str(path) for source, path in logs if source.rank is not None],
                "nodes": [str(path) for source, path in logs if source.node is not None],
                "failure": None if failed is None else failure_facts(failed, failed.excerpt()),
            }
        )
    return {"id": run.id, "attempts": rows}
