"""What a page is about: a run, several runs, or a group, read anew for every page."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from castoff.launcher.report.comparing import compare
from castoff.launcher.report.comparison_page import comparison_page
from castoff.launcher.report.gathering import Wish, gather
from castoff.launcher.report.group_page import group_page
from castoff.launcher.report.page import page
from castoff.launcher.runs.groups import Group
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import RunStatus
from castoff.launcher.status.group_states import GroupStates
from castoff.launcher.status.poller import Poller
from castoff.launcher.status.watch import statuses


class Seen(NamedTuple):
    """A subject at one moment."""

    page: Callable[[int | None], str]
    """Its page, which a browser loads again after so many seconds; None: which it does not."""
    over: bool
    """Whether all runs are over."""


class Subject(NamedTuple):
    """What a page is about."""

    name: str
    look: Callable[[Poller], Seen]
    """Read it; raises CastoffError if that is not possible."""
    runs: Sequence[RunDirectory] = ()
    """The runs whose metrics are read."""


def of_run(run: RunDirectory, wish: Wish) -> Subject:
    """One run."""

    def look(poller: Poller) -> Seen:
        facts = gather(run, wish, poller)
        return Seen(functools.partial(page, facts), facts.now.over)

    return Subject(run.id, look, [run])


def of_runs(runs: Sequence[RunDirectory], part: Callable[[RunStatus], RunStatus], wish: Wish) -> Subject:
    """Several runs, side by side. `part`: the part of a run that is meant."""

    def look(poller: Poller) -> Seen:
        states = [*map(part, statuses(runs, poller))]
        content = compare([*zip(runs, states, strict=True)], wish.by, wish.largest)
        return Seen(functools.partial(comparison_page, content), all(now.over for now in states))

    return Subject("comparison", look, runs)


def of_group(group: Group) -> Subject:
    """A group."""

    def look(poller: Poller) -> Seen:
        states = GroupStates.of(group, poller)
        over = all(one is None or one.over or one.never_begins for one in states.statuses.values())
        return Seen(functools.partial(group_page, states, time.time()), over)

    return Subject(group.id, look)
