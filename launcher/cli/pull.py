"""castoff pull: fetch a run's files from another machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.job_options import Target, target
from castoff.launcher.cli.offers import complete_runs
from castoff.launcher.cli.output import json_option, print_facts, print_json, report
from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.parameters import is_selector
from castoff.launcher.text.words import counted, listed, size_words

if TYPE_CHECKING:
    from castoff.launcher.remote.pulling import NotFetched, Pull

_LISTED = 8


@click.command(
    "pull",
    epilog=examples(
        "castoff --on aurora pull train",
        "castoff --on aurora pull train results/best.pt -o best",
        "castoff --on aurora pull sweep lr=1e-3 'logs/1.0/rank-0000?.log'",
    ),
)
@click.argument("run", required=False, shell_complete=complete_runs)
@click.argument("words", nargs=-1, metavar="[NAME=VALUE...] [PATTERN...]")
@click.option(
    "-o", "--to", "folder", metavar="DIR", help="The folder to write to; default: the run's id, here."
)
@json_option
def command(run: str | None, words: tuple[str, ...], folder: str | None, as_json: bool) -> int:
    """Fetch a run's files from the machine that --on names: only those that are new or have changed.

    Without PATTERN these are the files of the run directory: logs, metrics, records, the script, and what the
    program wrote to $CASTOFF_RUN_DIR. Not fetched are secrets, the copy of the code, links, and files above
    256 MiB; a PATTERN fetches these, except secrets.

    PATTERN is a path in the run directory, or, if none there matches, in the job's working directory, whose
    files go to workdir/; it may have a shell's wildcards. NAME=VALUE or sweep:3,7-9 selects members. Of a
    group, each run gets a folder. If the connection breaks, pull continues where it was. Files in DIR that
    differ from those there are replaced.
    """
    there = target.get()
    if there is None:
        raise CastoffError(
            "pull fetches files from another machine: name it, as in "
            f"`castoff --on NAME pull {run or 'RUN'}`; `castoff on` lists the machines"
        )
    if run is not None and {*run} & {*"*?["}:
        click.get_current_context().fail(f"name a run before the pattern {run}")
    selectors = [word for word in words if is_selector(word) and not {*word} & {*"/*?["}]
    if run is not None and is_selector(run):
        selectors, run = [run, *selectors], None
    pull = _fetch(there, run, selectors, [word for word in words if word not in selectors], folder)
    _print(pull, there, as_json=as_json)
    for pattern in pull.unmatched:
        report(f"{pull.name}: no file matches {pattern}, in the run directory or the job's working directory")
    return int(bool(pull.failed or pull.unmatched))


def _fetch(
    there: Target, run: str | None, selectors: list[str], patterns: list[str], folder: str | None
) -> Pull:
    from castoff.launcher.remote.messages import Wanted
    from castoff.launcher.remote.passing import through_breaks
    from castoff.launcher.remote.pulling import Pull
    from castoff.launcher.remote.transient import Transient

    line, name = Transient(), there.machine.entry.name
    pull = Pull(
        there.machine,
        Wanted(run or "", selectors, patterns),
        None if folder is None else Path(folder).expanduser(),
        lambda text: line.show(f"{name}: {text}"),
    )

    def once() -> int:
        try:
            pull.once(there.typed)
        finally:
            line.erase()
        return 0

    through_breaks(there.machine, once)
    return pull


def _print(pull: Pull, there: Target, *, as_json: bool) -> None:
    name = there.machine.entry.name
    if as_json:
        missing = [one._asdict() for one in (*pull.failed, *pull.left_out)]
        facts: dict[str, Any] = {"id": pull.name, "directory": str(pull.folder), "on": name}
        print_json(
            {**facts, "fetched": [*pull.fetched], "unchanged": len(pull.unchanged), "missing": missing}
        )
        return
    size = size_words(sum(pull.fetched.values()))
    there_before = f"; {counted(len(pull.unchanged), 'file')} here already" if pull.unchanged else ""
    print_facts(
        run=pull.name,
        on=f"{name} ({there.machine.entry.host})",
        to=pull.folder,
        fetched=f"{counted(len(pull.fetched), 'file')}, {size}{there_before}",
    )
    for one in pull.failed:
        report(f"{one.name}: not fetched: {one.why}")
    for line in _left_out(pull.left_out):
        report(line)


def _left_out(files: list[NotFetched]) -> list[str]:
    """Which files were left out, in a line; and how to get them."""
    if not files:
        return []
    names = listed([f"{one.name}: {one.why}" for one in files], _LISTED)
    return [f"not fetched, unless a pattern names it: {names}"]
