"""castoff init: write a commented job file to start from."""

from __future__ import annotations

import json
import os
from pathlib import Path

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.job_options import load_site
from castoff.launcher.cli.offers import site_option
from castoff.launcher.config.schema import FILE, job_schema
from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.planning.render import example_job
from castoff.launcher.process import files
from castoff.launcher.schedulers.registry import HAVE_DIRECTIVES
from castoff.launcher.text.quoting import visible_word


@click.command("init", epilog=examples("castoff init", "castoff init causets.yaml --site aurora"))
@click.argument("path", default="job.yaml", type=click.Path(path_type=Path))
@site_option("The site to write it for.")
def command(path: Path, site_name: str | None) -> None:
    """Write a commented job file to start from; never over a file that is there.

    Beside it goes .castoff.schema.json, by which editors complete and check its fields.
    """
    site = load_site(site_name)
    text = example_job(site)
    shown = printable(str(path))
    if os.path.lexists(path):
        raise CastoffError(f"{shown}: exists already; name another file, or remove it")
    schema = json.dumps(job_schema(HAVE_DIRECTIVES))
    for each, content in {path: text, path.with_name(FILE): schema}.items():
        try:
            files.replace(each, content, 0o644)
        except OSError as error:
            raise CastoffError(f"{printable(str(each))}: cannot be written: {error.strerror}") from error
    chosen = f" --site {visible_word(site_name)}" if site_name else ""
    click.echo(f"wrote {shown}; next: castoff render {visible_word(str(path))}{chosen}")
