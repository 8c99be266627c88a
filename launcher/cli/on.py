"""castoff on: manage the machines for --on, install castoff on them, and serve callers on other machines."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.output import (
    is_terminal,
    json_option,
    print_facts,
    print_json,
    print_table,
    report,
)
from castoff.launcher.errors import CastoffError
from castoff.launcher.remote import entries as known
from castoff.launcher.remote.entries import Entry
from castoff.launcher.text.layout import Column
from castoff.launcher.text.quoting import shell_word
from castoff.launcher.text.shortened import cut_middles
from castoff.launcher.text.words import counted, size_words

if TYPE_CHECKING:
    from castoff.launcher.remote.machine import Machine

_COLUMNS = (Column("name"), Column("host"), Column("dir", least=16, shorten=cut_middles), Column("site"))


@click.group(
    "on",
    invoke_without_command=True,
    epilog=examples(
        "castoff on add aurora me@aurora.alcf.anl.gov --dir /lus/flare/projects/P/me",
        "castoff --on aurora submit job.yaml",
        "castoff --on aurora logs -f",
    ),
)
@json_option
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """Name machines for --on, and install castoff there; without COMMAND, list them.

    castoff --on NAME VERB … runs a verb on that machine over your own ssh. The variable CASTOFF_ON, or `on:`
    in the project's .castoff/config.yaml, names the machine for every verb that is about runs; --on local
    means this one.
    """
    if context.obj is not None and context.invoked_subcommand != "run":
        context.fail("on takes no program, so nothing may follow --")
    if context.invoked_subcommand is None:
        _list(as_json)


@command.command("add", epilog=examples("castoff on add lab me@lab.example.org --dir /scratch/me"))
@click.argument("name")
@click.argument("host", metavar="[USER@]HOST")
@click.option(
    "--dir", "folder", required=True, metavar="FOLDER", help="The machine's folder for runs and code."
)
@click.option("--site", help="Site profile to plan with; default: the one that castoff chooses there.")
@click.option("--python", help="Python there to install castoff with, as python3.12.")
@click.option(
    "--setup",
    multiple=True,
    metavar="LINE",
    help="Shell line that runs there before castoff; may be repeated.",
)
@click.option(
    "--castoff", "program", metavar="PATH", help="The path of a castoff that is installed there already."
)
def add(
    name: str,
    host: str,
    folder: str,
    site: str | None,
    python: str | None,
    setup: tuple[str, ...],
    program: str | None,
) -> None:
    """Add the machine NAME, or change it.

    HOST may be an alias of ~/.ssh/config. FOLDER must be visible from the machine's compute nodes; quote a ~
    for your home there.
    """
    entry = Entry(
        name=name, host=host, dir=folder, site=site, python=python, setup=list(setup), castoff=program
    )
    path = known.add(entry, os.environ)
    print_facts(added=name, host=host, dir=folder, file=path)
    home = os.environ.get("HOME", "").rstrip("/")
    if home and folder.startswith(f"{home}/"):
        meant = shell_word(f"~{folder.removeprefix(home)}")
        report(f"{folder} is in your home here, as your shell expands ~; for your home there: --dir {meant}")
    report(f"`castoff on check {name}` connects and shows what is there")


@command.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the machines."""
    _list(as_json)


def _list(as_json: bool) -> None:
    machines = known.entries(os.environ).values()
    if as_json:
        print_json(*(msgspec.to_builtins(entry) for entry in machines))
    elif machines:
        rows = [(entry.name, entry.host, entry.dir, entry.site or "") for entry in machines]
        print_table(_COLUMNS, rows)
    else:
        report("no machines yet; castoff on add NAME USER@HOST --dir FOLDER adds one")


@command.command("remove")
@click.argument("name")
def remove(name: str) -> None:
    """Forget the machine NAME, without removing anything on it."""
    entry = known.entry_named(name, os.environ, "castoff on remove")
    path = known.remove(name, os.environ)
    _machine(entry).ssh.close()
    print_facts(removed=name, file=path)


@command.command("install")
@click.argument("name")
def install(name: str) -> None:
    """Install this castoff on the machine NAME, into a virtual environment below your home there."""
    from castoff.launcher.remote.install import install_castoff
    from castoff.launcher.remote.machine import RefusedByMachine

    machine = _machine(known.entry_named(name, os.environ, "castoff on install"))
    install_castoff(machine, os.environ, report)
    try:
        with machine.session(["castoff", "on", "check", name]):
            pass
    except RefusedByMachine as refused:  # castoff is installed, but refuses the folder
        report(str(refused))


@command.command("check")
@click.argument("name")
@json_option
def check(name: str, as_json: bool) -> None:
    """Connect to the machine NAME, and show what castoff finds there."""
    machine = _machine(known.entry_named(name, os.environ, "castoff on check"))
    with machine.session(["castoff", "on", "check", name], site=machine.entry.site) as session:
        hello = session.hello
    facts: dict[str, Any] = {
        "machine": name,
        "host": machine.entry.host,
        "folder": hello.folder,
        "castoff": hello.version,
        "python": hello.python,
        "site": hello.site_name or None,
        "why": hello.site_why or None,
    }
    if as_json:
        print_json(facts)
    else:
        print_facts(**facts)
    if hello.site_note:
        report(hello.site_note)


@command.command("clean")
@click.argument("name")
@click.option("--dry-run", "dry", is_flag=True, help="Only show what would be removed.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@click.pass_context
def clean(context: click.Context, name: str, dry: bool, yes: bool, as_json: bool) -> int:
    """Remove code that no run on the machine NAME needs any more, and installations of castoff that nobody
    uses.

    Asks first. Code stays if a run there was submitted with it, if jobs have written files to it, and if it
    is the newest of its project.
    """
    from castoff.launcher.remote.passing import Passed, run_on_terminal
    from castoff.launcher.remote.passing import run as run_there

    flags = {"--dry-run": dry, "--yes": yes, "--json": as_json}
    words = [flag for flag, is_set in flags.items() if is_set]
    if not (yes or dry) and (as_json or not is_terminal(sys.stdin)):
        context.fail("cannot ask without a terminal: give --yes, or --dry-run to see what would be removed")
    machine = _machine(known.entry_named(name, os.environ, "castoff on clean"))
    cleaning = Passed(machine, "on", ["unneeded", *words], typed=["castoff", "on", "clean", name, *words])
    asks = not words and is_terminal(sys.stdout)
    return (run_on_terminal if asks else run_there)(cleaning, os.environ)


def _machine(entry: Entry) -> Machine:
    from castoff.launcher.remote.machine import Machine

    return Machine(entry, os.environ, as_named=True)


# Commands that a castoff on another machine runs on this one


@command.command("unneeded", hidden=True)
@click.option("--dry-run", "dry", is_flag=True)
@click.option("--yes", is_flag=True)
@json_option
def unneeded_(dry: bool, yes: bool, as_json: bool) -> None:
    """Remove code and castoff installations that nothing needs, on behalf of `castoff on clean`."""
    from castoff.launcher.remote import unneeded

    folder = Path.cwd()
    result = unneeded.unneeded(folder, os.environ)
    sizes = {path: unneeded.size(path) for path in result.unneeded}
    if sizes and not as_json:
        columns = [Column("folder", least=24, shorten=cut_middles), Column("size")]
        print_table(columns, [(str(path), size_words(size)) for path, size in sizes.items()])
    elif not as_json:
        report("there is nothing to remove")
    if sizes and not (dry or yes):
        question = f"Remove {counted(len(sizes), 'folder')}, {size_words(sum(sizes.values()))}?"
        if not click.confirm(question, err=True):
            raise CastoffError("nothing was removed")
    removed = unneeded.remove(folder, [*sizes], os.environ) if sizes and not dry else []
    if as_json:
        print_json(
            *(
                {"folder": str(path), "bytes": size, "removed": path in removed}
                for path, size in sizes.items()
            )
        )
    for note in result.notes:
        report(note)
    if removed:
        report(f"removed {counted(len(removed), 'folder')}")


def _caller_options(function: Any) -> Any:
    for option in (
        click.option("--protocol", type=int, required=True),
        click.option("--caller", required=True),
        click.option("--machine", required=True),
        click.option("--named", is_flag=True),
        click.option("--installed"),
    ):
        function = option(function)
    return function


@command.command("serve", hidden=True)
@_caller_options
@click.option("--site")
def serve(
    protocol: int, caller: str, machine: str, named: bool, installed: str | None, site: str | None
) -> int:
    """Answer messages of a castoff on another machine, on standard input and output."""
    from castoff.launcher.remote import called
    from castoff.launcher.remote.answering import serve as answer
    from castoff.launcher.remote.messages import PROTOCOL

    os.environ["CASTOFF_ON"] = ""
    called.mark_used()
    rewrite = called.rewriting(machine, named=named)
    source, sink = called.message_streams()
    called.rewrite_streams(rewrite)
    if protocol == PROTOCOL:
        _report_difference(caller, machine, installed)
    return answer(source, sink, rewrite, site)


@command.command("run", hidden=True)
@_caller_options
@click.option("--terminal", "terminals", multiple=True, type=click.Choice(["out", "err"]))
@click.option("--variables", is_flag=True)
@click.option("--positions", "nonce")
@click.pass_context
def run(
    context: click.Context,
    protocol: int,
    caller: str,
    machine: str,
    named: bool,
    installed: str | None,
    terminals: tuple[str, ...],
    variables: bool,
    nonce: str | None,
) -> None:
    """Run a verb for a castoff on another machine."""
    from castoff.launcher.cli.main import main
    from castoff.launcher.remote import called
    from castoff.launcher.remote.messages import PROTOCOL

    if protocol != PROTOCOL:
        raise CastoffError(
            f"{machine}: the castoff there and the one here ({caller}) cannot work together: "
            f"{_remedy(machine, installed)}"
        )
    os.environ["CASTOFF_ON"] = ""
    called.mark_used()
    if variables:
        sent: dict[str, bytes] = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=dict[str, bytes])
        os.environ.update({name: os.fsdecode(value) for name, value in sent.items()})
    if nonce is not None:
        from castoff.launcher.cli.follow import write
        from castoff.launcher.logs.positions import Positions, followed

        reached: dict[str, int] = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=dict[str, int])
        followed.set(Positions(reached, write, nonce=nonce))
    called.rewrite_streams(called.rewriting(machine, named=named), terminals)
    _report_difference(caller, machine, installed)
    words = context.obj or []
    if words[:1] != ["trust"]:  # the command that allows this folder
        called.check_own_folder()
    called.end_with_caller(signal.SIGHUP if words[:1] == ["shell"] else signal.SIGINT)
    main(words)


def _report_difference(caller: str, machine: str, installed: str | None) -> None:
    """Report if this castoff and the caller's differ in version."""
    from importlib.metadata import PackageNotFoundError, version

    from castoff.launcher.remote.wheel import differs

    try:
        installed_version = version("castoff")
    except PackageNotFoundError:
        return
    if differs(installed_version, caller):
        remedy = _remedy(machine, installed)
        report(f"{machine} has castoff {installed_version}, and this one is {caller}: {remedy}")


def _remedy(machine: str, installed: str | None) -> str:
    if installed is None:
        return f"`castoff on install {machine}` installs the same there"
    return f"update {installed} there"
