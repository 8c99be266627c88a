"""castoff cancel."""

from __future__ import annotations

import json
import os
import time

import click

from launcher.commands.job_options import json_option
from launcher.local.control import cancel
from launcher.local.scheduler import KILL_AFTER
from launcher.runs import Index
from launcher.watch import status


@click.command("cancel")
@click.argument("runs", nargs=-1, required=True)
@json_option
def command(runs: tuple[str, ...], as_json: bool) -> int:
    """End runs, and wait until all their processes are gone."""
    index = Index.of(os.environ)
    found = [index.find(run) for run in runs]
    over = {run.id: status(run).state in ("ended", "unknown") for run in found}
    for run in found:
        if not over[run.id]:
            cancel(run)
    give_up = time.monotonic() + 2 * KILL_AFTER
    told = []
    for run in found:
        while status(run).state in ("pending", "running") and time.monotonic() < give_up:
            time.sleep(0.1)
        now = status(run)
        told.append({"id": run.id, "state": now.state, "ending": now.ending})
        if not as_json:
            was = " already" if over[run.id] else ""
            click.echo(f"{run.id}: {now.state}{was}{f', {now.ending}' if now.ending else ''}")
    if as_json:
        click.echo(json.dumps(told))
    return 0 if all(one["state"] in ("ended", "unknown") for one in told) else 1
