"""castoff schema: print the JSON schema of job files."""

from __future__ import annotations

import json

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.config.schema import job_schema
from castoff.launcher.schedulers.registry import HAVE_DIRECTIVES


@click.command("schema", epilog=examples("castoff schema >castoff.schema.json"))
def command() -> None:
    """Print the JSON schema of job files with one job or several, for editors and checkers."""
    click.echo(json.dumps(job_schema(HAVE_DIRECTIVES), indent=2))
