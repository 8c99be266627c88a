"""castoff cancel: end runs."""

from __future__ import annotations

import os

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.output import ending_words, json_option, print_json
from castoff.launcher.cli.run_options import run_options, runs_meant
from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.index import Entry, Index


@click.command("cancel", epilog=examples("castoff cancel train", "castoff cancel --name 'sweep*'"))
@run_options
@json_option
def command(runs: tuple[str, ...], names: tuple[str, ...], as_json: bool) -> int:
    """End runs, and wait until all their processes are gone.

    Their scheduler is asked once to end all of them. If a run's directory was deleted, its jobs are found by
    the path of their script.
    """
    from castoff.launcher.submission.cancel import end

    others, orphans = _without_directory(runs)
    requests = end(runs_meant(others, names)) if others or names or not orphans else []
    problems = _end_orphans(orphans, as_json)
    for request in requests:
        if (status := request.after) is None:
            continue
        if as_json:
            print_json({"id": status.id, "state": status.state, "ending": status.ending})
        else:
            click.echo(f"{status.id}: {ending_words(status, '' if request.asked else ' already')}")
    problems += [request.problem for request in requests if request.problem]
    if problems:
        raise CastoffError("\n".join(problems))
    return 0


def _without_directory(runs: tuple[str, ...]) -> tuple[list[str], list[Entry]]:
    """Return the references of runs that have a directory, and the index entries of runs that have none any
    more.
    """
    index = Index.of(os.environ)
    gone = {reference: index.gone(reference) for reference in runs}
    orphans = {entry.path: entry for entry in gone.values() if entry is not None}
    return [reference for reference, entry in gone.items() if entry is None], list(orphans.values())


def _end_orphans(entries: list[Entry], as_json: bool) -> list[str]:
    """End the jobs of runs whose directories are gone, print the results, and return the error messages."""
    from castoff.launcher.submission.orphans import end, look_for

    problems = []
    for entry in entries:
        try:
            result = end(look_for(entry))
        except CastoffError as error:
            problems.append(str(error))
            continue
        if as_json:
            print_json({"id": entry.id, "state": "ended", "ending": "cancelled"})
        else:
            click.echo(result)
    return problems
