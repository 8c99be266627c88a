"""castoff cancel."""

from __future__ import annotations

import os
import shlex
import time

import click

from launcher.commands.completers import complete_runs
from launcher.commands.output import json_option, print_json
from launcher.errors import CastoffError, printable
from launcher.index import Index
from launcher.local.control import cancel, is_alive, other_host, taken
from launcher.records import Submission, read
from launcher.runs import Run
from launcher.status import RunStatus
from launcher.watch import status

_PATIENCE = 30.0
"""Seconds: more than the scheduler takes for TERM, KILL and what is left behind."""


@click.command("cancel")
@click.argument("runs", nargs=-1, required=True, shell_complete=complete_runs)
@json_option
def command(runs: tuple[str, ...], as_json: bool) -> int:
    """End runs, and wait until all their processes are gone."""
    found = Index.of(os.environ).find_all(runs)
    asked, refused = _ask(found)
    problems = list(refused.values())
    give_up = time.monotonic() + _PATIENCE
    told = []
    for run in (run for run in found if run not in refused):
        while run in asked and _goes_on(run) and time.monotonic() < give_up:
            time.sleep(0.05)
        now = status(run)
        told.append({"id": run.id, "state": now.state, "ending": now.ending})
        if not as_json:
            already = "" if run in asked else " already"
            ending = f", {now.ending}" if now.ending not in (None, now.state) else ""
            click.echo(f"{run.id}: {now.state}{already}{ending}")
        if run in asked and _goes_on(run):
            why = f"; {now.reason}" if now.reason else ""
            problems.append(f"{run.id}: still not over after {_PATIENCE:g} s{why}")
    if as_json:
        print_json(told)
    if problems:
        raise CastoffError("\n".join(problems))
    return 0


def _ask(found: list[Run]) -> tuple[list[Run], dict[Run, str]]:
    """Ask the schedulers of those that go on; the runs that were asked, and why others could not be."""
    asked, refused = [], {}
    for run in found:
        now = status(run)
        if now.state == "ended":
            continue
        ours = now.scheduler == "local" or taken(run) is not None  # or a launch in an allocation
        if not ours or read(run.path / "submission.json", Submission) is None:
            refused[run] = _elsewhere(now)
            continue
        if now.state == "unknown" and other_host(run) is None:
            continue
        try:
            cancel(run)
            asked.append(run)
        except CastoffError as error:
            refused[run] = str(error)
    return asked, refused


def _goes_on(run: Run) -> bool:
    """Whether something of a run may still be there."""
    return is_alive(run) or (other_host(run) is not None and not status(run).final)


def _elsewhere(now: RunStatus) -> str:
    """How a run is ended that is another scheduler's."""
    job = shlex.quote(now.job) if now.job else "its job"
    ways = {"slurm": f"scancel {job}", "pbs": f"qdel {job}"}
    who = ways.get(now.scheduler, "end the process that runs its script")
    return printable(f"{now.id}: castoff did not submit it, so it cannot end it; {who}")
