"""castoff schema."""

from __future__ import annotations

import json

import click

from launcher.config.schema import job_schema


@click.command("schema")
def command() -> None:
    """Print the JSON schema of job files, for editors and checkers."""
    click.echo(json.dumps(job_schema(), indent=2))
