"""castoff cancel: end runs."""

from __future__ import annotations

import os
from collections.abc import Collection

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.output import ending_words, json_option, print_json
from castoff.launcher.cli.run_options import groups_meant, run_options, runs_meant, selected
from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.index import Entry, Index
from castoff.launcher.runs.members import numbered
from castoff.launcher.runs.parameters import is_selector
from castoff.launcher.runs.run import RunDirectory


@click.command(
    "cancel",
    epilog=examples("castoff cancel train", "castoff cancel --name 'sweep*'", "castoff cancel sweep:3,7-9"),
)
@run_options(only_active=True)
@json_option
def command(runs: tuple[str, ...], names: tuple[str, ...], as_json: bool) -> int:
    """End runs, and wait until all their processes are gone. RUN:3,7-9 ends only these members of an array,
    and `RUN lr=1e-3` those with this parameter.

    Their scheduler is asked once to end all of them. If a run's directory was deleted, its jobs are found by
    the path of their script. Of a group, runs that wait for others end first.
    """
    from castoff.launcher.submission.cancel import end

    runs, parts = _parts(runs)
    for words in parts:
        chosen = selected(words, ())
        for run in chosen.runs:
            _end_members(run, chosen.members[str(run.path)], as_json)
    if parts and not (runs or names):
        return 0
    for group in groups_meant(runs)[0]:
        group.close()  # so that the command that submitted it does not continue it
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


def _parts(references: tuple[str, ...]) -> tuple[tuple[str, ...], list[list[str]]]:
    """Return the references of whole runs, and those that name members, each with its parameters."""
    index = Index.of(os.environ)
    runs: list[list[str]] = []
    for word in references:
        if runs and is_selector(word):
            runs[-1].append(word)
        else:
            runs.append([word])
    parts = [words for words in runs if len(words) > 1 or numbered(index, words[0])[1]]
    return tuple(words[0] for words in runs if words not in parts), parts


def _end_members(run: RunDirectory, members: Collection[int], as_json: bool) -> None:
    """End members of a run, and print how each has ended."""
    from castoff.launcher.submission.cancel_members import end_members

    now = end_members(run, members)
    for member in now.members:
        if member.member not in members:
            continue
        if as_json:
            facts = {"id": now.id, "member": member.member, "state": member.state, "ending": member.ending}
            print_json(facts)
        else:
            words = member.ending if member.ending == "cancelled" else f"ended already, {member.ending}"
            click.echo(f"{now.id}:{member.member}: {words}")


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
