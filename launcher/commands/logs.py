"""castoff logs."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from launcher.commands.job_options import json_option
from launcher.errors import CastoffError
from launcher.runs import Index, Run, read_record


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
    number, folder = _attempt(found, member, attempt)
    logs = found.logs / f"{member}.{number}"
    failure = read_record(folder / "failure.json")
    if as_json:
        click.echo(json.dumps(_where(found, member, number, failure)))
        return
    if rank is not None:
        _copy(logs / f"rank-{rank:05d}.log")
        return
    if failure.get("rank") is not None:
        what = failure.get("signal") or f"exit code {failure.get('code')}"
        click.echo(f"--- rank {failure['rank']} on {failure.get('host')} failed first: {what} ---")
        sys.stdout.flush()
        _copy(logs / f"rank-{failure['rank']:05d}.log")
        click.echo("--- all ranks ---")
        sys.stdout.flush()
    _copy(found.script_log(member))


def _attempt(run: Run, member: int, attempt: int | None) -> tuple[int, Path]:
    known = {number: folder for of, number, folder in run.attempts() if of == member}
    if not known:
        raise CastoffError(f"{run.id}: member {member} has not begun, so it has no logs")
    chosen = max(known) if attempt is None else attempt
    if chosen not in known:
        raise CastoffError(f"{run.id}: there is no attempt {chosen}; there are {sorted(known)}")
    return chosen, known[chosen]


def _where(run: Run, member: int, attempt: int, failure: dict[str, Any]) -> dict[str, Any]:
    folder = run.logs / f"{member}.{attempt}"
    return {
        "id": run.id,
        "member": member,
        "attempt": attempt,
        "script": str(run.script_log(member)),
        "ranks": sorted(str(path) for path in folder.glob("rank-*.log")),
        "failure": failure or None,
    }


def _copy(path: Path) -> None:
    try:
        with path.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
    except FileNotFoundError:
        raise CastoffError(f"{path}: there is no such log") from None
    sys.stdout.buffer.flush()
