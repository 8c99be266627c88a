"""castoff cancel: end runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import click

from castoff.launcher.cli.help import examples
from castoff.launcher.cli.output import ending_words, json_option, print_json
from castoff.launcher.cli.run_options import groups_meant, run_options, runs_meant
from castoff.launcher.config.array_indices import indices, problem
from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.index import Entry, Index


@click.command(
    "cancel",
    epilog=examples("castoff cancel train", "castoff cancel --name 'sweep*'", "castoff cancel sweep:3,7-9"),
)
@run_options
@json_option
def command(runs: tuple[str, ...], names: tuple[str, ...], as_json: bool) -> int:
    """End runs, and wait until all their processes are gone. RUN:3,7-9 ends only these members of an array.

    Their scheduler is asked once to end all of them. If a run's directory was deleted, its jobs are found by
    the path of their script. Of a group, runs that wait for others end first.
    """
    from castoff.launcher.submission.cancel import end

    runs, members = _members_meant(runs)
    for reference, numbers in members.items():
        _end_members(reference, numbers, as_json)
    if members and not (runs or names):
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


def _members_meant(references: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, Sequence[int]]]:
    """Return the references of whole runs, and of runs with the members that they name: `sweep:3`."""
    whole: list[str] = []
    members: dict[str, Sequence[int]] = {}
    for reference in references:
        run, colon, text = reference.rpartition(":")
        if not colon or problem(text) is not None or _is_a_run(reference):
            whole.append(reference)
        else:
            members[run] = indices(text)
    return tuple(whole), members


def _is_a_run(reference: str) -> bool:
    entries = Index.of(os.environ).entries()
    return Path(reference).is_dir() or any(reference in (entry.id, entry.name) for entry in entries)


def _end_members(reference: str, members: Sequence[int], as_json: bool) -> None:
    """End members of a run, and print how each has ended."""
    from castoff.launcher.submission.cancel_members import end_members

    now = end_members(Index.of(os.environ).find(reference), members)
    for member in now.members:
        if member.member not in members:
            continue
        if as_json:
            facts = {"id": now.id, "member": member.member, "state": member.state, "ending": member.ending}
            print_json(facts)
        else:
            click.echo(f"{now.id}:{member.member}: {member.ending}")


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
