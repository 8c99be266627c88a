"""castoff schema."""

from __future__ import annotations

import click
import msgspec

from launcher.commands.output import print_json
from launcher.spec import JobSpec


@click.command("schema")
def command() -> None:
    """Print the JSON schema of job files, for editors and checkers."""
    schema = msgspec.json.schema(JobSpec)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    print_json(schema)
