"""castoff wait."""

from __future__ import annotations

import os

import click
import msgspec

from launcher.commands.output import json_option, print_json
from launcher.errors import CastoffError
from launcher.index import Index
from launcher.watch import wait


class _StillGoing(CastoffError):
    exit_code = 124  # as timeout(1)


@click.command("wait")
@click.argument("run")
@click.option(
    "--timeout", type=click.FloatRange(min=0), help="Give up after so many seconds (exit code 124)."
)
@json_option
def command(run: str, timeout: float | None, as_json: bool) -> int:
    """Wait until a run is over, and exit with its code (1 where its ending is unknown)."""
    now = wait(Index.of(os.environ).find(run), timeout)
    if not now.over:
        raise _StillGoing(f"{now.id} is still {now.state} after {timeout:g} s")
    if as_json:
        print_json(msgspec.to_builtins(now))
    else:
        click.echo(f"{now.id}: {now.ending}")
    return 1 if now.code is None else now.code
