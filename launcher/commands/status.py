"""castoff status."""

from __future__ import annotations

import os
import sys
import time

import click
import msgspec

from launcher.commands.job_options import json_option
from launcher.runs import Index
from launcher.watch import RunStatus, status


@click.command("status")
@click.argument("run", required=False)
@json_option
def command(run: str | None, as_json: bool) -> None:
    """Say what became of a run, or of all of them.

    RUN is an id, the beginning of one, a name (its newest run) or a directory.
    """
    index = Index.of(os.environ)
    if run is None:
        every = [status(known) for known, _ in index.runs()]
        if as_json:
            click.echo(msgspec.json.encode(every).decode())
        else:
            _print_list(every)
        return
    one = status(index.find(run))
    if as_json:
        click.echo(msgspec.json.encode(one).decode())
    else:
        _print_one(one)


def _print_list(every: list[RunStatus]) -> None:
    from rich.console import Console
    from rich.table import Table

    if not every:
        click.echo("no runs yet")
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("run", "site", "state", "ending", "code", "members"):
        table.add_column(heading, no_wrap=True)
    for one in every:
        code = "" if one.code is None else str(one.code)
        table.add_row(one.id, one.site, one.state, one.ending or "", code, str(len(one.members)))
    width = None if sys.stdout.isatty() else 200
    Console(width=width).print(table)


def _print_one(one: RunStatus) -> None:
    ending = f", {one.ending}" if one.ending and one.state != "unknown" else ""
    code = f" (code {one.code})" if one.code else ""
    click.echo(f"run        {one.id}")
    click.echo(f"state      {one.state}{ending}{code}")
    click.echo(f"site       {one.site}, job {one.job}")
    click.echo(f"directory  {one.directory}")
    for member in one.members:
        for attempt in member.attempts:
            name = f"{member.member}.{attempt.attempt}"
            spent = ""
            if attempt.started and attempt.ended:
                spent = f", {attempt.ended - attempt.started:.0f} s"
            began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(attempt.started or 0))
            when = f"since {began} on {attempt.host}" if attempt.started else "never began"
            click.echo(f"attempt    {name}  {attempt.ending or attempt.state}, {when}{spent}")
            if failure := attempt.failure:
                what = failure.get("signal") or f"exit code {failure.get('code')}"
                click.echo(
                    f"           rank {failure.get('rank')} on {failure.get('host')} failed first: {what}"
                )
            click.echo(f"           logs in {attempt.logs}")
    if one.state == "unknown":
        click.echo(
            "           its scheduler is gone and no ending was written: everything was killed at "
            "once, or the machine went down. castoff does not guess; read the logs, then submit again."
        )
