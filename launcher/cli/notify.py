"""castoff notify: name the webhooks to which messages about runs go."""

from __future__ import annotations

import os
import sys

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.output import is_terminal, json_option, print_facts, print_json, print_table, report
from castoff.launcher.errors import CastoffError
from castoff.launcher.text.layout import Column

_COLUMNS = (Column("name"), Column("host"))


@click.group(
    "notify",
    invoke_without_command=True,
    epilog=examples(
        "castoff notify add phone",
        "castoff notify test phone",
        "castoff submit train.yaml --set notify.to=phone",
    ),
)
@json_option
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """Name webhooks for `notify.to` of job files; without COMMAND, list them.

    A webhook's URL is a secret, so castoff keeps it in a file that only you can read, and job files have
    its name.
    """
    if context.invoked_subcommand is None:
        _list(as_json)


@command.command(
    "add", epilog=examples("castoff notify add phone", "castoff notify add team --kind teams <url.txt")
)
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(["slack", "teams", "discord", "ntfy", "json"]),
    help="The service; default: by the host, else json.",
)
def add(name: str, kind: str | None) -> None:
    """Add the webhook NAME, or replace it. Its URL is read from standard input, or asked for."""
    from castoff.launcher.notify import webhooks
    from castoff.launcher.runs.notices import webhook_file

    if is_terminal(sys.stdin):
        url = click.prompt("URL (not shown)", hide_input=True, err=True)
    else:
        url = sys.stdin.readline(10_000)
    webhook = webhooks.add(name, url, kind, os.environ)
    print_facts(added=name, host=webhook.host, file=webhook_file(name, os.environ))
    report(f"`castoff notify test {name}` sends a message")


@command.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the webhooks, without their URLs."""
    _list(as_json)


def _list(as_json: bool) -> None:
    from castoff.launcher.notify import webhooks

    found = []
    for name in webhooks.names(os.environ):
        try:
            found.append((name, webhooks.read(name, os.environ).host))
        except CastoffError as error:
            report(str(error))
    if as_json:
        print_json(*({"name": name, "host": host} for name, host in found))
    elif found:
        print_table(_COLUMNS, found)
    else:
        report("no webhooks yet; `castoff notify add NAME` adds one")


@command.command("test")
@click.argument("name")
def test(name: str) -> None:
    """Send a message to the webhook NAME, or to a mail address."""
    from castoff.launcher.notify.delivery import deliver
    from castoff.launcher.notify.message import example

    outcome = deliver(example(), name, os.environ)
    if outcome.error is not None:
        raise CastoffError(f"not sent: {outcome.error}")
    print_facts(sent=name)


@command.command("remove")
@click.argument("name")
def remove(name: str) -> None:
    """Forget the webhook NAME."""
    from castoff.launcher.notify import webhooks

    print_facts(removed=name, file=webhooks.remove(name, os.environ))
