"""castoff status, for a group of runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import click

from castoff.launcher.cli.output import brief, moment, print_json, print_table
from castoff.launcher.errors import printable
from castoff.launcher.runs.groups import Group
from castoff.launcher.runs.states import RunStatus
from castoff.launcher.status.group_states import GroupStates
from castoff.launcher.status.poller import AT_A_GLANCE, Poller
from castoff.launcher.text.layout import Column
from castoff.launcher.text.shortened import cut_ids, cut_middles
from castoff.launcher.text.words import listed

_MOST = 100
"""Limit of jobs up to which the tree is drawn; more are grouped by state."""

_NAMED = 8
"""Limit of the jobs that are named for each state if there are more."""

_COLUMNS = (
    Column("job", least=20, shorten=cut_middles),
    Column("state"),
    Column("took", goes=1),
    Column("run", goes=2, least=16, shorten=cut_ids),
    Column("why", goes=3, least=24),
)


def print_group(group: Group, describe: Callable[[RunStatus], dict[str, Any]], *, as_json: bool) -> None:
    """Print a group's tree with the states of its runs. `describe`: makes a run's status plain data."""
    states = GroupStates.of(group, Poller(AT_A_GLANCE))
    if as_json:
        jobs = [
            {"name": name, "after": job.after, "run": describe(status) if status else None}
            for (name, job), status in zip(group.jobs.items(), states.statuses.values(), strict=True)
        ]
        print_json({"group": group.id, "name": group.name, "file": group.file, "jobs": jobs})
        return
    now = time.time()
    for heading, text in (
        ("group", group.id),
        ("file", group.file),
        ("submitted", f"{moment(group.time)}, {brief(now - group.time)} ago"),
        ("state", states.words),
        ("to do", states.remedy),
    ):
        if text:
            click.echo(f"{heading:10} {printable(text)}")
    click.echo()
    if len(states.statuses) > _MOST:
        found: dict[str, list[str]] = {}
        for name in states.statuses:
            found.setdefault(states.word(name), []).append(name)
        table = [(word, str(len(names)), listed(names, _NAMED)) for word, names in found.items()]
        print_table([Column("state"), Column("count"), Column("jobs")], table)
        return
    rows = []
    for branch in states.branches:
        status = states.statuses[branch.name]
        also = f"also after {', '.join(branch.also)}" if branch.also else ""
        why = "; ".join(filter(None, [also, states.why(branch.name)]))
        cells = (states.took(branch.name, now), status.id if status else "", why)
        rows.append((branch.lines + branch.name, states.word(branch.name), *cells))
    print_table(_COLUMNS, rows)
