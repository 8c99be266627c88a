"""castoff trust: trust those who can write to a folder, or list those folders."""

from __future__ import annotations

import os
from pathlib import Path

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.output import json_option, print_facts, print_json, report
from castoff.launcher.trust.granted import grant, granted, granted_file, withdraw
from castoff.launcher.trust.paths import weaknesses


@click.command(
    "trust",
    epilog=examples(
        "castoff trust /shared/project",
        "castoff trust --remove /shared/project",
    ),
)
@click.argument("folders", nargs=-1, metavar="[FOLDER]...")
@click.option("--remove", is_flag=True, help="Trust these folders no longer.")
@json_option
def command(folders: tuple[str, ...], remove: bool, as_json: bool) -> None:
    """Trust everyone who can write to FOLDER: castoff runs what they put there.

    Without FOLDER, list the folders that you trust.
    """
    if remove and not folders:
        click.get_current_context().fail("--remove takes the folders to trust no longer")
    if "" in folders:  # as Path("") is, this would be the working folder
        click.get_current_context().fail("the folder is an empty word; is the variable set that names it?")
    change = withdraw if remove else grant
    changed = [change(Path(folder), os.environ) for folder in folders]
    shown = changed or granted(os.environ)
    if as_json:
        print_json(*({"folder": str(folder), "trusted": not remove} for folder in shown))
        return
    for folder in shown:
        if folders:
            print_facts(**{"no longer" if remove else "trusts": folder})
        else:
            click.echo(str(folder))
        if not remove:
            for weakness in weaknesses(folder):
                print_facts(who=f"{weakness.path} {weakness.why}")
    if folders:
        print_facts(list=granted_file(os.environ))
    elif not shown:
        report("no folder is trusted yet; castoff trust FOLDER trusts all who can write to it")
