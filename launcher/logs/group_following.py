"""Follows the runs of a group: each from its begin to its end, with the name of its job before each line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from castoff.launcher.logs.following import Follower, survey_pause
from castoff.launcher.logs.positions import Positions
from castoff.launcher.logs.show import End, Show
from castoff.launcher.logs.sources import Selection
from castoff.launcher.runs.groups import Group
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import RunStatus
from castoff.launcher.status.hopeless import hopeless
from castoff.launcher.status.poller import Poller
from castoff.launcher.status.watch import statuses

_IDLE = 2.0
"""Seconds in which no job has run after which the follower reports for what the next ones wait."""


@dataclass(eq=False)
class GroupFollower:
    """Shows the lines of all runs of a group as they are written.

    The runs' records are read together, so that each scheduler gets one query for all.
    """

    group: Group
    selection: Selection
    show: Callable[[str], Show]
    """Makes what formats the lines of a job, by its name."""
    write: Callable[[bytes], None]
    """Writes the shown lines to the output."""
    report: Callable[[str], None]
    """Writes messages to the user."""
    pause: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    positions: Positions = field(default_factory=Positions)
    """How far the logs were shown over an earlier connection, and are now."""

    def __post_init__(self) -> None:
        self._poller = Poller()
        self._left = {name: run for name, job in self.group.jobs.items() if (run := job.directory)}
        """The runs that are not followed yet, by the names of their jobs."""
        self._followed: dict[str, Follower] = {}
        self._states: dict[Path, RunStatus] = {}
        self._is_new = False
        """Whether states may have changed since the last look for runs to follow."""
        self._next_survey = self._idle_since = self.clock()

    def follow(self) -> Iterator[tuple[str, End]]:
        """Follow the runs to their ends, and yield each end with the name of its job.

        Raises:
            CastoffError: the records of a run cannot be read, or its directory is gone.
        """
        while self._left or self._followed:
            if self.clock() >= self._next_survey:
                self._survey()
            if self._is_new:
                self._is_new = False
                for name in [name for name in self._left if self._is_next(name)]:
                    self._begin(name, self._left.pop(name))
                # Logs that appear later are shown from their beginning.
                self.selection = self.selection._replace(tail=None)
            for name, follower in [*self._followed.items()]:
                self._idle_since = self.clock()
                follower.companions = len(self._followed)
                if (end := follower.step()) is not None:
                    del self._followed[name]
                    yield name, end
            due = [follower.due for follower in self._followed.values()]
            if self._left or self._followed:
                self.pause(max(0.0, min([self._next_survey, *due]) - self.clock()))

    def _begin(self, name: str, run: RunDirectory) -> None:
        self._followed[name] = Follower(
            run,
            self.selection,
            self.show(name),
            write=self.write,
            report=self.report,
            pause=self.pause,
            clock=self.clock,
            poller=self._poller,
            positions=self.positions,
            ask=partial(self._ask, run),
        )

    def _is_next(self, name: str) -> bool:
        """Whether a run is to be followed: it has begun or is over, or all has been idle for a while and it
        waits for no other run of the group.
        """
        state = self._states[self._left[name].path]
        if state.over or state.never_begins or any(member.attempts for member in state.members):
            return True
        is_idle = not self._followed and self.clock() - self._idle_since >= _IDLE
        return is_idle and self._left.keys().isdisjoint(self.group.jobs[name].waits_for)

    def _ask(self, run: RunDirectory, fresh: bool) -> RunStatus:
        """The status of a run, as it was at the last survey unless it must be `fresh`."""
        if fresh or self.clock() >= self._next_survey:
            self._survey()
        return self._states[run.path]

    def _survey(self) -> None:
        """Read the records of all runs that were not over."""
        began = self.clock()
        runs = [*self._left.values(), *(follower.run for follower in self._followed.values())]
        for run, state in zip(runs, statuses(runs, self._poller), strict=True):
            self._states[run.path] = state
        found = hopeless([*self._states.values()])
        self._states = dict(zip(self._states, found, strict=True))
        self._is_new = True
        took = self.clock() - began
        self._next_survey = began + took + survey_pause(took)
