"""castoff logs for a group of runs, and castoff submit --follow for a file with several jobs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from castoff.launcher.cli.follow import last_word, not_stopped, pause, write
from castoff.launcher.cli.output import has_colours, print_json, report
from castoff.launcher.cli.run_options import report_unsent
from castoff.launcher.errors import CastoffError
from castoff.launcher.logs.group_following import GroupFollower
from castoff.launcher.logs.positions import Positions, followed
from castoff.launcher.logs.printing import write_logs
from castoff.launcher.logs.show import Json, Show, Text
from castoff.launcher.logs.sources import Selection, attempts_of
from castoff.launcher.runs.groups import Group
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import AttemptStatus
from castoff.launcher.status.group_states import GroupStates, first_code
from castoff.launcher.status.poller import AT_A_GLANCE, Poller

Attempts = list[tuple[int, AttemptStatus]]


def print_group_logs(
    group: Group,
    tail: int | None,
    describe: Callable[[RunDirectory, Attempts], dict[str, Any]],
    *,
    as_json: bool,
) -> int:
    """Print the logs of each job's run below a heading, and return the exit code: 1 if none has logs, or some
    cannot be read. `describe`: makes a run's logs plain data.
    """
    report_unsent([group])
    states, selection = GroupStates.of(group, Poller(AT_A_GLANCE)), Selection(tail=tail)
    terminal, colours = sys.stdout.isatty(), has_colours()
    some, failed = False, False
    for name, status in states.statuses.items():
        run = group.jobs[name].directory
        if status is None or run is None:
            continue
        if not as_json:
            write(f"=== {name}: {states.word(name)}, {run.id} ===\n".encode())
        attempts: Attempts = []
        try:
            attempts = attempts_of(run, status, selection)
            if not as_json:
                write_logs(run, attempts, selection, write, terminal=terminal, colours=colours)
        except CastoffError as error:  # it has no logs; or some cannot be read, and all others were written
            report(str(error))
            failed = failed or bool(attempts)
        if as_json:
            print_json({"job": name, **describe(run, attempts)})
        some = some or bool(attempts)
    return int(failed or not some)


def follow_group(group: Group, tail: int | None = None, *, as_json: bool = False) -> int:
    """Follow the runs of a group to their ends, and return the exit code of `castoff wait`. Ctrl-C stops
    none of them.
    """
    unsent = report_unsent([group])
    places = {name: place for place, name in enumerate(group.jobs)}
    shows: dict[str, Show] = {}

    def show(name: str) -> Show:
        run = group.jobs[name].directory
        several = run is not None and len(run.facts().members) > 1
        if as_json:
            shows[name] = Json(name)
        else:
            terminal, colours = sys.stdout.isatty(), has_colours()
            shows[name] = Text(
                several=several, terminal=terminal, colours=colours, job=name, place=places[name]
            )
        return shows[name]

    try:
        positions = followed.get() or Positions()
        follower = GroupFollower(
            group,
            Selection(tail=tail),
            show,
            write=write,
            report=report,
            pause=pause,
            positions=positions,
        )
        for name, end in follower.follow():
            if positions.is_first(f"end of {end.id}"):
                write(shows[name].end(end))
                report(last_word(end))
        states = GroupStates.of(group, Poller())
    except KeyboardInterrupt:
        return not_stopped(group.id)
    report("; ".join(filter(None, [f"{group.id}: {states.words}", states.remedy])))
    return first_code(filter(None, states.statuses.values()), [group]) or int(unsent)
