"""castoff cancel."""

from __future__ import annotations

import os
import time

import click

from launcher.commands.output import json_option, print_json
from launcher.errors import CastoffError
from launcher.index import Index
from launcher.local.control import cancel, is_alive
from launcher.runs import Run
from launcher.watch import status

_PATIENCE = 30.0
"""Seconds: more than the scheduler takes for TERM, KILL and what is left behind."""


@click.command("cancel")
@click.argument("runs", nargs=-1, required=True)
@json_option
def command(runs: tuple[str, ...], as_json: bool) -> int:
    """End runs, and wait until all their processes are gone."""
    found = _find(runs)
    over = {run.id for run in found if status(run).over}
    for run in found:
        if run.id not in over:
            cancel(run)
    give_up = time.monotonic() + _PATIENCE
    told = []
    for run in found:
        while is_alive(run) and time.monotonic() < give_up:
            time.sleep(0.05)
        now = status(run)
        told.append({"id": run.id, "state": now.state, "ending": now.ending})
        if not as_json:
            already = " already" if run.id in over else ""
            ending = f", {now.ending}" if now.ending not in (None, now.state) else ""
            click.echo(f"{run.id}: {now.state}{already}{ending}")
    if as_json:
        print_json(told)
    left = [one["id"] for one in told if one["state"] not in ("ended", "unknown")]
    if left:
        raise CastoffError(f"{', '.join(map(str, left))}: still not over after {_PATIENCE:g} s")
    return 0


def _find(references: tuple[str, ...]) -> list[Run]:
    """All of the runs, or none and everything that is wrong."""
    index = Index.of(os.environ)
    found: dict[str, Run] = {}
    problems = []
    for reference in references:
        try:
            run = index.find(reference)
            found[str(run.path)] = run
        except CastoffError as error:
            problems.append(str(error))
    if problems:
        raise CastoffError("\n".join(problems))
    return list(found.values())
