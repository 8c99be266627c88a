"""castoff sites."""

from __future__ import annotations

import click
import msgspec
import yaml

from launcher.commands.output import json_option, print_json
from launcher.site import Search, Site


@click.command("sites")
@click.argument("name", required=False)
@json_option
def command(name: str | None, as_json: bool) -> None:
    """List the sites, or show one as it is resolved from all it extends."""
    if name is not None:
        shown = msgspec.to_builtins(Site.load(name))
        if as_json:
            print_json(shown)
        else:
            click.echo(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True), nl=False)
        return
    profiles = Search.here().profiles()
    rows = []
    for known, files in profiles.items():
        site = Site.load(known)
        rows.append({"name": known, "from": files[0][0], "description": site.description})
    chosen, why = Site.choose()
    if as_json:
        print_json({"sites": rows, "chosen": chosen.name, "because": why})
        return
    width = max(len(row["name"]) for row in rows)
    for row in rows:
        click.echo(f"{row['name']:{width}}  {row['from']:8}  {row['description']}")
    click.echo(f"without --site: {chosen.name}, because {why}")
