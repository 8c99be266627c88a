"""Options by which verbs select runs, by a reference or a pattern of names, and members, by parameters."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

import click
import msgspec

from castoff.launcher.cli.offers import F, complete_active_runs, complete_parameters, complete_runs
from castoff.launcher.errors import CastoffError, report
from castoff.launcher.runs.groups import Group
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.members import is_run, members_selected, numbered
from castoff.launcher.runs.parameters import is_selector
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import RunStatus
from castoff.launcher.status.overview import Overview
from castoff.launcher.text.words import listed


def run_options(*, only_active: bool = False) -> Callable[[F], F]:
    """Add RUNS and --name. `only_active`: shells offer only runs that are not over."""

    def add(function: F) -> F:
        function = click.option(
            "--name",
            "names",
            multiple=True,
            metavar="NAME",
            help="Also all runs of this name, or of such a group, that are not over; * matches anything.",
        )(function)
        complete = complete_active_runs if only_active else complete_runs
        return click.argument("runs", nargs=-1, shell_complete=complete)(function)

    return add


class Selected(NamedTuple):
    """Runs, and the members that were selected of some."""

    runs: list[RunDirectory]
    members: dict[str, frozenset[int]]
    """The selected members, by the run's directory; a run that is missing here is meant whole."""

    def of(self, now: RunStatus) -> RunStatus:
        """A run's status with only the members that were selected."""
        if (chosen := self.members.get(now.directory)) is None:
            return now
        members = [member for member in now.members if member.member in chosen]
        return msgspec.structs.replace(now, members=members)


def selected(words: Sequence[str], names: Sequence[str], *, newest_too: bool = False) -> Selected:
    """The runs with these references, each perhaps with members' numbers, as in `sweep:3,7-9`, or followed
    by their parameters, as in `sweep lr=1e-3`; and the runs whose names match. Without a run, the newest is
    meant.

    Raises:
        CastoffError: no such run or member, or its directory may not be used.
    """
    index = Index.of(os.environ)
    references: list[str] = []
    numbers: dict[str | None, list[int]] = {}
    selectors: dict[str | None, list[str]] = {}
    for number, word in enumerate(words):
        if is_selector(word) and (number or not is_run(index, word)):
            selectors.setdefault(references[-1] if references else None, []).append(word)
        else:
            reference, of_run = numbered(index, word)
            references.append(reference)
            numbers |= {reference: of_run} if of_run else {}
    runs = runs_meant(references, names, newest_too=newest_too) if references or names else [index.newest()]
    members = {}
    for named in {**numbers, **selectors}:
        run = index.newest() if named is None else index.find(named)
        members[str(run.path)] = members_selected(run, selectors.get(named, ()), numbers.get(named, ()))
    return Selected(runs, members)


def _selectors(
    context: click.Context, _parameter: click.Parameter, words: tuple[str, ...]
) -> tuple[str, ...]:
    """Refuse words that select no members, as click refuses arguments that a verb does not take."""
    if extra := [word for word in words if not is_selector(word)]:
        context.fail(f"Got unexpected extra argument{'s'[: len(extra) > 1]} ({' '.join(extra)})")
    return words


def selectors_argument(metavar: str = "[NAME=VALUE...]") -> Callable[[F], F]:
    """Add the argument for the parameters of the members that a verb is about."""
    return click.argument(
        "selectors", nargs=-1, metavar=metavar, callback=_selectors, shell_complete=complete_parameters
    )


def only_member(run: RunDirectory, selectors: Sequence[str]) -> int:
    """The member with these parameters.

    Raises:
        CastoffError: the run has no such member, or several.
    """
    first, *others = sorted(members_selected(run, selectors))
    if others:
        raise CastoffError(
            f"{run.id}: {len(others) + 1} members have {', '.join(selectors)}: name one of them"
        )
    return first


def part_meant(
    run: str | None, selectors: Sequence[str], members: Sequence[int] = ()
) -> tuple[RunDirectory, frozenset[int]]:
    """The run that a verb for reading is about, and its members with these numbers or parameters; empty: all.

    Without a run, the first word may already be a parameter.

    Raises:
        CastoffError: no such run or member, or its directory may not be used.
    """
    index = Index.of(os.environ)
    if run is not None and is_selector(run) and not is_run(index, run):
        selectors = [run, *selectors]
        run = None
    numbers: list[int] = []
    if run is not None:
        run, numbers = numbered(index, run)
    directory = run_meant(run)
    return directory, members_selected(directory, selectors, [*numbers, *members])


def groups_meant(references: Sequence[str]) -> tuple[list[Group], list[str]]:
    """The groups among references of groups and runs, and the other references."""
    index = Index.of(os.environ)
    groups = {reference: index.group(reference) for reference in references}
    found = {group.id: group for group in groups.values() if group is not None}
    return [*found.values()], [reference for reference, group in groups.items() if group is None]


def report_unsent(groups: Sequence[Group]) -> bool:
    """Report the jobs of groups that were never submitted; return whether there are any."""
    for group in groups:
        if unsent := [job.job for job in group.jobs.values() if job.directory is None and not job.sent]:
            names = listed(unsent, 8)
            report(f"{group.id}: never submitted: {names}; `castoff resubmit {group.id}` submits the rest")
    return any(job.directory is None and not job.sent for group in groups for job in group.jobs.values())


def run_meant(run: str | None) -> RunDirectory:
    """The run with this reference; without one, the newest run, which is reported on standard error.

    Only for verbs that read: a verb that ends a run needs its name.

    Raises:
        CastoffError: no such run, or its directory may not be used.
    """
    index = Index.of(os.environ)
    if run is not None:
        return index.find(run)
    newest = index.newest()
    report(f"{newest.id}: the newest run")
    return newest


def runs_meant(runs: Sequence[str], names: Sequence[str], *, newest_too: bool = False) -> list[RunDirectory]:
    """The runs with these references, those of groups, and the runs whose names match; each once.

    Runs selected by name are active ones; with `newest_too`, also the newest run of each name if it is over.

    Raises:
        CastoffError: no such run, or its directory may not be used.
        click.UsageError: neither references nor names are given.
    """
    if not runs and not names:
        click.get_current_context().fail(
            "name a run, or all of a name by --name NAME; `castoff list` shows your runs"
        )
    index = Index.of(os.environ)
    words = [word for word in runs[1:] if is_selector(word) and not is_run(index, word)]
    if members := [*words, *(word for word in runs if numbered(index, word)[1])]:
        verb = click.get_current_context().command_path
        raise CastoffError(
            f"{members[0]}: selects members, but {verb} is for whole runs; `castoff cancel` ends members"
        )
    selected = {run.path: run for run in index.find_all(runs)}
    if names:
        overview = Overview.asked(index, names=names)
        for note in overview.notes:
            report(note)
        rows, _ = overview.choose()
        if not rows:
            raise CastoffError(f"there are no runs of such a name: {', '.join(names)}")
        newest = {row.summary.name: row for row in rows} if newest_too else {}
        for row in rows:
            if row.summary.state != "ended" or newest.get(row.summary.name) is row:
                selected[row.run.path] = row.run
        if not selected:
            report(f"no active run has such a name: {', '.join(names)}")
    return list(selected.values())
