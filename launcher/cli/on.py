"""castoff on: name machines for --on, and install castoff there; and what runs there for a caller."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.install_elsewhere import install_there
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
from castoff.launcher.text.quoting import shell_word
from castoff.launcher.text.words import counted, size_words

if TYPE_CHECKING:
    from castoff.launcher.remote.machine import Machine


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
@click.option("--dir", "folder", required=True, metavar="FOLDER", help="Folder there for runs and code.")
@click.option("--site", help="Site profile to plan with; default: what castoff chooses there.")
@click.option("--python", help="Python there to install castoff with, as python3.12.")
@click.option(
    "--setup", multiple=True, metavar="LINE", help="Shell line to run there first; may be repeated."
)
@click.option("--castoff", "program", metavar="PATH", help="A castoff that is installed there already.")
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

    HOST may be one of ~/.ssh/config. FOLDER must be visible from the machine's compute nodes; one that does
    not begin with / counts from your home there.
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
    found = known.entries(os.environ)
    if as_json:
        print_json(*(msgspec.to_builtins(entry) for entry in found.values()))
    elif found:
        rows = [(entry.name, entry.host, entry.dir, entry.site or "") for entry in found.values()]
        print_table(("name", "host", "dir", "site"), rows)
    else:
        report("no machines yet; castoff on add NAME USER@HOST --dir FOLDER adds one")


@command.command("remove")
@click.argument("name")
def remove(name: str) -> None:
    """Forget the machine NAME. What is there stays there."""
    entry = known.entry_named(name, os.environ, "castoff on remove")
    path = known.remove(name, os.environ)
    _machine(entry).ssh.close()
    print_facts(removed=name, file=path)


@command.command("install")
@click.argument("name")
def install(name: str) -> None:
    """Install this castoff on the machine NAME, into a virtual environment below your home there."""
    from castoff.launcher.remote.machine import Refused

    machine = _machine(known.entry_named(name, os.environ, "castoff on install"))
    install_there(machine, asks=False)
    try:
        with machine.session(["castoff", "on", "check", name]):
            pass
    except Refused as refused:  # the folder: castoff is there, and says what to do
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
def clean(context: click.Context, name: str, dry: bool, yes: bool, as_json: bool) -> None:
    """Remove code that no run on the machine NAME needs any more, and castoffs that nobody calls.

    Asks first. Code stays if a run there was submitted with it, if jobs have written files to it, and if it
    is the newest of its project.
    """
    from castoff.launcher.remote.frames import Remove, Removed, Unneeded, WhatIsUnneeded

    if not (yes or dry) and (as_json or not is_terminal(sys.stdin)):
        context.fail("cannot ask without a terminal: give --yes, or --dry-run to see what would be removed")
    machine = _machine(known.entry_named(name, os.environ, "castoff on clean"))
    again = ["castoff", "on", "clean", name]
    with machine.session(again) as session:
        found = session.ask(WhatIsUnneeded(), "castoff looked for what nothing needs")
        folders = found.folders if isinstance(found, Unneeded) else {}
        if not as_json:
            _show_unneeded(folders)
        if folders and not (dry or yes):
            together = size_words(sum(folders.values()))
            if not click.confirm(f"Remove {counted(len(folders), 'folder')}, {together}?", err=True):
                raise CastoffError("nothing was removed")
        answer = session.ask(Remove([*folders]), "folders were removed") if folders and not dry else None
    removed = answer.folders if isinstance(answer, Removed) else []
    if as_json:
        print_json(*({"folder": one, "bytes": folders[one], "removed": one in removed} for one in folders))
    for note in found.notes if isinstance(found, Unneeded) else []:
        report(f"{name}: {note}")
    if removed:
        report(f"{name}: removed {counted(len(removed), 'folder')}")


def _show_unneeded(folders: dict[str, int]) -> None:
    if folders:
        print_table(("folder", "size"), [(folder, size_words(size)) for folder, size in folders.items()])
    else:
        report("there is nothing to remove")


def _machine(entry: Entry) -> Machine:
    from castoff.launcher.remote.machine import Machine

    return Machine(entry, os.environ, as_named=True)


# What a castoff elsewhere calls here


def _called(function: Any) -> Any:
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
@_called
@click.option("--site")
def serve(
    protocol: int, caller: str, machine: str, named: bool, installed: str | None, site: str | None
) -> int:
    """Answer a castoff elsewhere, by messages on standard input and output."""
    from castoff.launcher.remote import far_side, frames
    from castoff.launcher.remote.far_streams import speak

    os.environ["CASTOFF_ON"] = ""
    far_side.mark_used()
    rewrite = far_side.rewriting(machine, named=named)
    source, sink = far_side.own_streams()
    speak(rewrite)
    if protocol == frames.PROTOCOL:
        _report_difference(caller, machine, installed)
    return far_side.serve(source, sink, rewrite, site)


@command.command("run", hidden=True)
@_called
@click.option("--terminal", "terminals", multiple=True, type=click.Choice(["out", "err"]))
@click.option("--variables", is_flag=True)
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
) -> None:
    """Call a verb for somebody elsewhere."""
    from castoff.launcher.cli.main import main
    from castoff.launcher.remote import far_side, frames
    from castoff.launcher.remote.far_streams import end_with_caller, speak

    if protocol != frames.PROTOCOL:
        raise CastoffError(
            f"{machine}: the castoff there and the one here ({caller}) cannot work together: "
            f"{_remedy(machine, installed)}"
        )
    os.environ["CASTOFF_ON"] = ""
    far_side.mark_used()
    if variables:
        given: dict[str, bytes] = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=dict[str, bytes])
        os.environ.update({name: os.fsdecode(value) for name, value in given.items()})
    speak(far_side.rewriting(machine, named=named), terminals)
    _report_difference(caller, machine, installed)
    words = context.obj or []
    if words[:1] != ["trust"]:  # which is how the folder is allowed
        far_side.check_own_folder()
    end_with_caller(signal.SIGHUP if words[:1] == ["shell"] else signal.SIGINT)
    main(words)


def _report_difference(caller: str, machine: str, installed: str | None) -> None:
    """Say once for a call that the two castoffs are not the same."""
    from importlib.metadata import PackageNotFoundError, version

    from castoff.launcher.remote.wheel import differs

    try:
        own = version("castoff")
    except PackageNotFoundError:
        return
    if differs(own, caller):
        report(f"{machine} has castoff {own}, and here is {caller}: {_remedy(machine, installed)}")


def _remedy(machine: str, installed: str | None) -> str:
    if installed is None:
        return f"`castoff on install {machine}` installs the same there"
    return f"update {installed} there"
