"""castoff sites: list the sites, show one, compare one with its machine, or make one of this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec
import yaml

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.job_options import load_site
from castoff.launcher.cli.offers import complete_sites
from castoff.launcher.cli.output import json_option, print_json
from castoff.launcher.cli.sites_new import new, probe
from castoff.launcher.config.site import Search, Site
from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.schedulers.choice import choose_site, profile, site_named
from castoff.launcher.text.quoting import visible_word
from castoff.launcher.text.words import counted

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class _Sites(click.Group):
    """A click group whose first word may also be a site's name: `castoff sites NAME` is `castoff sites show
    NAME`.
    """

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] in self.commands:
            return super().resolve_command(ctx, args)
        from castoff.launcher.config.synonyms import of_verb
        from castoff.launcher.typed.suggestion import did_you_mean

        command = did_you_mean(args[0], self.commands)
        if template := of_verb("sites", args[0]):
            command = f"; here: {' '.join([template.partition(' VALUE')[0], *map(visible_word, args[1:])])}"
        if command and args[0] not in Search.here().profiles():
            ctx.fail(f"there is no site {args[0]!r}{command}")
        if any(not word.startswith("-") for word in args[1:]):
            words = ", ".join(self.commands)
            ctx.fail(
                f"takes a site's name or one of {words}, not {args[0]!r}"
                + (did_you_mean(args[0], self.commands))
            )
        return "show", self.commands["show"], args

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        offered = super().shell_complete(ctx, incomplete)
        if incomplete.startswith("-"):
            return offered
        return [*complete_sites(ctx, click.Argument(["name"]), incomplete), *offered]


@click.group(
    "sites",
    cls=_Sites,
    invoke_without_command=True,
    subcommand_metavar="[NAME | new | probe | check | show]",
    epilog=examples(
        "castoff sites", "castoff sites aurora", "castoff sites new mycluster --probe", "castoff sites check"
    ),
)
@json_option
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """List the sites; with NAME, show that site, including what it extends."""
    if context.invoked_subcommand is None:
        _list(as_json)


def _either(as_json: bool) -> bool:
    """Whether --json was given before or after the verb."""
    parent = click.get_current_context().parent
    return as_json or bool(parent and parent.params.get("as_json"))


@command.command("show", short_help="Show a site.")
@click.argument("name", shell_complete=complete_sites)
@json_option
def _show(name: str, as_json: bool) -> None:
    """Show a site, including what it extends."""
    data = msgspec.to_builtins(site_named(name))
    if _either(as_json):
        print_json(data)
    else:
        click.echo(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), nl=False)


@command.command("check", short_help="Compare a profile with its machine.")
@click.argument("name", required=False, shell_complete=complete_sites)
@click.option("--update", is_flag=True, help="Write the differences into the profile, or into your own one.")
@json_option
def _check_one(name: str | None, update: bool, as_json: bool) -> int:
    """Compare a profile's limits and nodes with what the scheduler of this machine reports.

    The exit code is 0 if they agree, 1 if something differs, 2 if the scheduler gave no answer. With
    --update, it is 0 if every difference has been written.
    """
    try:
        site = load_site(name)
    except CastoffError as error:
        error.exit_code = 2  # since 1 means that something differs
        raise
    return _check(site, update, _either(as_json))


command.add_command(new)
command.add_command(probe)


def _list(as_json: bool) -> None:
    """List all profiles; then raise an error about those that cannot be used."""
    rows: list[dict[str, str | None]] = []
    broken: list[CastoffError] = []
    search = Search.here()
    for name, files in search.profiles().items():
        row: dict[str, str | None] = {"name": name, "from": files[0][0], "description": None, "error": None}
        try:
            row["description"] = profile(name, search).description
        except CastoffError as error:
            row["error"] = str(error)
            broken.append(error)
        rows.append(row)
    chosen, why = None, None
    try:
        site, why = choose_site()
        chosen = site.name
    except CastoffError as error:
        if not any(str(error).startswith(str(listed)) for listed in broken):
            broken.append(error)
    if as_json:
        print_json({"sites": rows, "chosen": chosen, "because": why})
    else:
        width = max(len(str(row["name"])) for row in rows)
        for row in rows:
            description = "cannot be used, see below" if row["error"] else row["description"]
            click.echo(f"{row['name']:{width}}  {row['from']:8}  {description}")
        if chosen:
            click.echo(f"without --site: {chosen}, because {why}")
    if broken:
        joint = CastoffError("\n".join(map(str, broken)))
        joint.exit_code = max(error.exit_code for error in broken)
        raise joint


def _check(site: Site, update: bool, as_json: bool) -> int:
    # Imported late: most verbs of the group need no scheduler.
    from castoff.launcher.schedulers.machine_questions import ask
    from castoff.launcher.schedulers.registry import title_of
    from castoff.launcher.siting.check import Comparison
    from castoff.launcher.siting.new import update_profile

    info = ask(site)
    scheduler, compared = title_of(site.scheduler), Comparison(site, info)
    different = compared.differences
    change = update_profile(site, info, compared, Search.here()) if update and different else None
    code = int(bool(change.left if change else different))
    if as_json:
        fields = ("field", "profile", "source", "date", "scheduler")
        differences = [{name: getattr(difference, name) for name in fields} for difference in different]
        written = {"written": str(change.path), "left": change.left} if change else {}
        report = {"site": site.name, "scheduler": scheduler, "differences": differences}
        print_json({**report, "not_compared": compared.not_compared, **written})
        return code
    for difference in different:
        cited = ", ".join(filter(None, (difference.source, difference.date)))
        source = f" ({cited})" if cited else ""
        in_profile = f"{site.name}: {difference.profile}{source}"
        click.echo(f"{difference.field}: {in_profile}; {scheduler}: {difference.scheduler}")
    count = counted(len(different), "difference") if different else "nothing differs"
    click.echo(f"{site.name} and {scheduler}: {count}")
    for value in compared.not_compared:
        click.echo(f"not compared: {value}")
    if change:
        click.echo(f"wrote {printable(str(change.path))}")
        for value in change.left:
            click.echo(f"not written: {value}")
    elif different:
        name = visible_word(site.name)
        click.echo(f"to write what the scheduler reports: castoff sites check {name} --update")
    return code
