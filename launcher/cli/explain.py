"""castoff explain: show which rank this process is, and how castoff determines it."""

from __future__ import annotations

import os

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.output import json_option, print_json
from castoff.launcher.ranks import explain, explain_json


@click.command("explain", epilog=examples("castoff launch -n 2 castoff explain"))
@json_option
def command(as_json: bool) -> int:
    """Show this process's rank and the variables it comes from, or what is wrong.

    Run it where the rank would run: castoff launch -n 2 -- castoff explain, srun castoff explain.
    """
    report = explain_json(os.environ)
    if as_json:
        print_json(report)
    else:
        click.echo(explain(os.environ))
    return 1 if report.get("error") else 0
