"""castoff cancel."""

from __future__ import annotations

import os

import click

from launcher.commands.completers import complete_runs
from launcher.commands.output import json_option, print_json
from launcher.errors import CastoffError
from launcher.index import Index
from launcher.watch import status, statuses


@click.command("cancel")
@click.argument("runs", nargs=-1, required=True, shell_complete=complete_runs)
@json_option
def command(runs: tuple[str, ...], as_json: bool) -> int:
    """End runs, and wait until all their processes are gone."""
    from launcher.cancelling import Cancellation

    found = Index.of(os.environ).find_all(runs)
    asked, problems = [], []
    for run, before in zip(found, statuses(found), strict=True):
        try:
            asked.append(Cancellation(run, before))
        except CastoffError as error:
            problems.append(str(error))
    told = []
    for one in asked:
        is_gone = one.wait()
        now = status(one.run)
        told.append({"id": now.id, "state": now.state, "ending": now.ending})
        if not as_json:
            already = "" if one.asked else " already"
            ending = f", {now.ending}" if now.ending not in (None, now.state) else ""
            click.echo(f"{now.id}: {now.state}{already}{ending}")
        if not is_gone:
            why = f"; {now.reason}" if now.reason else ""
            problems.append(f"{now.id}: still not over after {one.patience:g} s{why}")
    if as_json:
        print_json(*told)
    if problems:
        raise CastoffError("\n".join(problems))
    return 0
