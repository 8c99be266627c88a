"""castoff schema."""

from __future__ import annotations

import click

from launcher.commands.output import print_json
from launcher.job_schema import job_schema


@click.command("schema")
def command() -> None:
    """Print the JSON schema of job files, for editors and checkers."""
    print_json(job_schema())
