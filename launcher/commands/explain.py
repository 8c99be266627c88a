"""castoff explain."""

from __future__ import annotations

import json
import os

import click

from launcher.commands.job_options import json_option
from launcher.ranks import explain, explain_json


@click.command("explain")
@json_option
def command(as_json: bool) -> int:
    """Say which rank this process is, from which variables that is known, or what is wrong.

    Run it where the rank would run: castoff launch -n 2 -- castoff explain, srun castoff explain.
    """
    told = explain_json(os.environ)
    click.echo(json.dumps(told, indent=2) if as_json else explain(os.environ))
    return 1 if told.get("error") else 0
