"""castoff sites: list the sites, show one, or check one."""

from __future__ import annotations

import click
import msgspec
import yaml

from launcher.cli.help import examples
from launcher.cli.job_options import load_site
from launcher.cli.offers import complete_sites
from launcher.cli.output import json_option, print_json, several
from launcher.config.site import Search, Site
from launcher.errors import CastoffError
from launcher.schedulers.choice import choose_site, profile, site_named


@click.command("sites", epilog=examples("castoff sites", "castoff sites aurora", "castoff sites check"))
@click.argument("words", nargs=-1, metavar="[check] [NAME]", shell_complete=complete_sites)
@json_option
def command(words: tuple[str, ...], as_json: bool) -> int | None:
    """List the sites; show one as it is resolved from all it extends; or check one.

    `check` compares a profile's limits with what the scheduler of this machine says. Its exit code is 0
    if they agree, 1 if something differs, 2 if that is not known.
    """
    verb, *names = words or ("",)
    if len(words) > 2 or (names and verb != "check"):
        context = click.get_current_context()
        context.fail(f"takes a name, or check and a name, but there stands {' '.join(words)!r}")
    if verb == "check":
        try:
            site = load_site(names[0] if names else None)
        except CastoffError as error:
            error.exit_code = 2  # 1 says that something differs
            raise
        return _check(site, as_json)
    if not verb:
        _list(as_json)
    elif as_json:
        print_json(msgspec.to_builtins(site_named(verb)))
    else:
        data = msgspec.to_builtins(site_named(verb))
        click.echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), nl=False)
    return None


def _list(as_json: bool) -> None:
    """List all profiles; then an error with what is wrong with those that cannot be used."""
    rows: list[dict[str, str | None]] = []
    broken: list[CastoffError] = []
    search = Search.here()
    for known, files in search.profiles().items():
        row: dict[str, str | None] = {"name": known, "from": files[0][0], "description": None, "error": None}
        try:
            row["description"] = profile(known, search).description
        except CastoffError as error:
            row["error"] = str(error)
            broken.append(error)
        rows.append(row)
    chosen, why = None, None
    try:
        site, why = choose_site()
        chosen = site.name
    except CastoffError as error:
        if not any(str(error).startswith(str(one)) for one in broken):
            broken.append(error)
    if as_json:
        print_json({"sites": rows, "chosen": chosen, "because": why})
    else:
        width = max(len(str(row["name"])) for row in rows)
        for row in rows:
            about = "cannot be used, see below" if row["error"] else row["description"]
            click.echo(f"{row['name']:{width}}  {row['from']:8}  {about}")
        if chosen:
            click.echo(f"without --site: {chosen}, because {why}")
    if broken:
        joint = CastoffError("\n".join(map(str, broken)))
        joint.exit_code = max(one.exit_code for one in broken)
        raise joint


def _check(site: Site, as_json: bool) -> int:
    from launcher.schedulers.machine_info import ask  # late, like what it runs
    from launcher.schedulers.registry import title_of
    from launcher.schedulers.site_check import Comparison

    scheduler, found = title_of(site.scheduler), Comparison(site, ask(site))
    if as_json:
        differences = [difference._asdict() for difference in found.differences]
        of = {"site": site.name, "scheduler": scheduler, "differences": differences}
        print_json({**of, "not_compared": found.not_compared})
        return 1 if differences else 0
    for one in found.differences:
        source = f" ({one.source}, {one.date})" if one.source else ""
        click.echo(f"{one.field}: {site.name}: {one.profile}{source}; {scheduler}: {one.scheduler}")
    many = several(len(found.differences), "difference") if found.differences else "nothing differs"
    click.echo(f"{site.name} and {scheduler}: {many}")
    for what in found.not_compared:
        click.echo(f"not compared: {what}")
    return 1 if found.differences else 0
