"""castoff status."""

from __future__ import annotations

import os
import sys
import time

import click
import msgspec

from launcher.commands.output import json_option, print_json
from launcher.index import Index
from launcher.watch import AttemptStatus, RunStatus, failure_words, status


@click.command("status")
@click.argument("run", required=False)
@json_option
def command(run: str | None, as_json: bool) -> None:
    """Say what became of a run, or of all of them.

    RUN is an id, the beginning of one, a name (its newest run), a scheduler's id or a directory.
    """
    index = Index.of(os.environ)
    if run is None:
        every = [status(known) for known, _ in index.runs()]
        if as_json:
            print_json(msgspec.to_builtins(every))
        else:
            _print_list(every)
        return
    one = status(index.find(run))
    if as_json:
        print_json(msgspec.to_builtins(one))
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
        # An id that is cut off could not be given to any verb.
        table.add_column(heading, no_wrap=heading != "run", overflow="fold")
    for one in every:
        code = "" if one.code is None else str(one.code)
        table.add_row(one.id, one.site, one.state, one.ending or "", code, str(len(one.members)))
    width = None if sys.stdout.isatty() else 200
    Console(width=width, markup=False, emoji=False, highlight=False).print(table)


def _print_one(one: RunStatus) -> None:
    ending = f", {one.ending}" if one.ending and one.state != "unknown" else ""
    code = f" (code {one.code})" if one.code else ""
    job = f", job {one.job}" if one.job else ""
    click.echo(f"run        {one.id}")
    click.echo(f"state      {one.state}{ending}{code}")
    if one.reason:
        click.echo(f"           {one.reason}")
    click.echo(f"site       {one.site}{job}")
    click.echo(f"directory  {one.directory}")
    for member in one.members:
        for attempt in member.attempts:
            click.echo(f"attempt    {member.member}.{attempt.attempt}  {_words(attempt)}")
            if attempt.reason:
                click.echo(f"           {attempt.reason}")
            if attempt.failure:
                click.echo(f"           {failure_words(attempt.failure)}")
            if attempt.started:
                click.echo(f"           logs in {attempt.logs}")


def _words(attempt: AttemptStatus) -> str:
    what = attempt.ending or attempt.state
    if not attempt.started:
        return f"{what}, never began"
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(attempt.started))
    if attempt.ended:
        # A clock that was set back in between would make it negative.
        return (
            f"{what} after {max(attempt.ended - attempt.started, 0):.0f} s, began {began} on {attempt.host}"
        )
    return f"{what}, began {began} on {attempt.host}"
