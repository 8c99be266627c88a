"""castoff stacks: show where the ranks of a running job are in their programs."""

from __future__ import annotations

import os
from pathlib import Path

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.offers import complete_running_runs
from castoff.launcher.cli.output import json_option, print_json, report
from castoff.launcher.cli.run_options import only_member, selectors_argument
from castoff.launcher.errors import printable

_NUMBER = click.IntRange(min=0)


@click.command(
    "stacks",
    epilog=examples("castoff stacks train", "castoff stacks train --rank 3 --all-threads"),
)
@click.argument("run", shell_complete=complete_running_runs, metavar="RUN")
@selectors_argument()
@click.option("--rank", "ranks", type=_NUMBER, multiple=True, help="Only this rank; may be repeated.")
@click.option("--host", help="Only the ranks on this host.")
@click.option("--member", type=_NUMBER, help="The member of an array; default: the one that is running.")
@click.option("--all-threads", is_flag=True, help="Also show the threads beside the main one.")
@json_option
def command(
    run: str,
    selectors: tuple[str, ...],
    ranks: tuple[int, ...],
    host: str | None,
    member: int | None,
    all_threads: bool,
    as_json: bool,
) -> int:
    """Show where the ranks of a running job are in their Python programs now; the job continues.

    RUN is an id, the beginning of one, a name (its newest run), a scheduler's id or a directory. Ranks with
    the same stack are shown together, the odd ones first; the innermost call is first. py-spy reads the
    stacks, if it is in the job's environment or in castoff's; otherwise the program must write them at
    SIGQUIT, as castoff's trainers do. The exit code is 1 if there is no stack at all.
    """
    # Imported late, since a shell that completes options waits for this module.
    import msgspec

    from castoff.launcher.runs.index import Index
    from castoff.launcher.stacks.collecting import collect
    from castoff.launcher.stacks.grouping import grouped
    from castoff.launcher.stacks.words import lines_of, notes_on, summary

    directory = Index.of(os.environ).find(run)
    if selectors and member is None:
        member = only_member(directory, selectors)
    found = collect(directory, member, ranks, host, os.environ, all_threads=all_threads)
    if as_json:
        print_json({"id": directory.id, **msgspec.to_builtins(found)})
    else:
        click.echo(summary(directory.id, found))
        click.echo()
        for line in lines_of(grouped(found.ranks), str(Path.cwd())):
            click.echo(printable(line))
    for note in notes_on(directory.id, found):
        report(note)
    return 0 if any(rank.threads for rank in found.ranks) else 1
