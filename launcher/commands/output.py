"""What the verbs share in how they answer: JSON for programs."""

from __future__ import annotations

import json
from typing import Any

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")


def print_json(answer: Any) -> None:
    """Print plain data as JSON."""
    click.echo(json.dumps(answer, indent=2))
