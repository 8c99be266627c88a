"""castoff wait."""

from __future__ import annotations

import os
import time

import click
import msgspec

from launcher.commands.job_options import json_option
from launcher.errors import CastoffError
from launcher.runs import Index
from launcher.watch import status

_POLL = 0.2


@click.command("wait")
@click.argument("run")
@click.option("--timeout", type=float, help="Give up after so many seconds (exit code 124).")
@json_option
def command(run: str, timeout: float | None, as_json: bool) -> int:
    """Wait until a run is over, and exit with its code (1 where its ending is unknown)."""
    found = Index.of(os.environ).find(run)
    give_up = None if timeout is None else time.monotonic() + timeout
    now = status(found)
    while now.state in ("pending", "running"):
        if give_up is not None and time.monotonic() > give_up:
            error = CastoffError(f"{found.id} is still {now.state} after {timeout:g} s")
            error.exit_code = 124
            raise error
        time.sleep(_POLL)
        now = status(found)
    if as_json:
        click.echo(msgspec.json.encode(now).decode())
    else:
        click.echo(f"{now.id}: {now.ending}")
    return 1 if now.code is None else now.code
