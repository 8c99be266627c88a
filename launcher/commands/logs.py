"""castoff logs."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import click
import msgspec

from launcher.commands.output import json_option, print_json
from launcher.errors import CastoffError
from launcher.index import Index
from launcher.runs import Run
from launcher.watch import AttemptStatus, failure_words, status


@click.command("logs")
@click.argument("run")
@click.option("--rank", type=click.IntRange(min=0), help="One rank's own log alone.")
@click.option("--member", type=click.IntRange(min=0), default=0, show_default=True, help="Of an array.")
@click.option("--attempt", type=click.IntRange(min=0), help="Default: the newest.")
@json_option
def command(run: str, rank: int | None, member: int, attempt: int | None, as_json: bool) -> None:
    """Print a run's logs: the first rank that failed comes first, then all ranks' lines as they came.

    With --json, where the logs are.
    """
    found = Index.of(os.environ).find(run)
    chosen = _attempt(found, member, attempt)
    folder = Path(chosen.logs)
    if as_json:
        print_json(
            {
                "id": found.id,
                "member": member,
                "attempt": chosen.attempt,
                "script": str(found.script_log(member)),
                "ranks": sorted(str(path) for path in folder.glob("rank-*.log")),
                "failure": msgspec.to_builtins(chosen.failure),
            }
        )
    elif rank is not None:
        _copy(folder / f"rank-{rank:05d}.log", folder)
    else:
        first = chosen.failure.rank if chosen.failure else None
        if chosen.failure and first is not None:
            click.echo(f"--- {failure_words(chosen.failure)} ---")
            _copy(folder / f"rank-{first:05d}.log", folder)
            click.echo("--- all ranks ---")
        _copy(found.script_log(member), folder)


def _attempt(run: Run, member: int, attempt: int | None) -> AttemptStatus:
    """The attempt that is meant.

    Raises:
        CastoffError: there is none, or it never began.
    """
    now = status(run)
    members = {one.member: one for one in now.members}
    if member not in members:
        raise CastoffError(f"{run.id}: there is no member {member}; there are 0 to {max(members)}")
    known = {one.attempt: one for one in members[member].attempts}
    if not known:
        because = f": {now.reason}" if now.reason else f", it is {members[member].state}"
        raise CastoffError(f"{run.id}: member {member} has not begun, so it has no logs{because}")
    chosen = known.get(max(known) if attempt is None else attempt)
    if chosen is None:
        listed = ", ".join(map(str, known))
        raise CastoffError(f"{run.id}: member {member} has no attempt {attempt}; there is {listed}")
    if chosen.ended and not run.script_log(member).exists():
        because = f": {chosen.reason}" if chosen.reason else ""
        raise CastoffError(f"{run.id}: {chosen.ending} before it began, so it has no logs{because}")
    return chosen


def _copy(path: Path, folder: Path) -> None:
    sys.stdout.flush()
    try:
        with path.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
    except FileNotFoundError:
        there = ", ".join(sorted(known.name for known in folder.glob("*.log"))) or "nothing"
        raise CastoffError(f"{path}: there is no such log; {folder} holds {there}") from None
    sys.stdout.buffer.flush()
