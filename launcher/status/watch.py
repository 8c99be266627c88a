"""The current state of runs: determined once, or repeatedly until the runs are over.

An attempt is `unknown` if it has no recorded ending and no scheduler knows it: the whole machine may have
gone down, and castoff does not guess.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterable, Iterator

from castoff.launcher import clock
from castoff.launcher.errors import StillRunning
from castoff.launcher.runs.owner import mark_of, other_host
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.secrets import remove_secrets
from castoff.launcher.runs.states import RunStatus
from castoff.launcher.schedulers.local.control import marked
from castoff.launcher.status import local_view
from castoff.launcher.status.hopeless import hopeless
from castoff.launcher.status.poller import Poller
from castoff.launcher.status.survey import RunRecords
from castoff.launcher.status.verdict import assembled, needs_no_secrets

_POLL = 0.2
_SLOWEST_POLL = 2.0
"""The longest pause between two reads of a run's records, in seconds; the pause grows the longer the run
takes. It is longer only where reading takes long, as with thousands of members.
"""
_PAUSE_TO_READING = 20
"""The least ratio of the pause to the CPU time that reading took: a login node is shared."""


def status(run: RunDirectory, poller: Poller | None = None) -> RunStatus:
    """Return the status of a run. A scheduler is queried only if the run's records leave the state open.

    Raises:
        CastoffError: a file in the run directory cannot be read.
    """
    return statuses([run], poller)[0]


def statuses(runs: Iterable[RunDirectory], poller: Poller | None = None) -> list[RunStatus]:
    """Return the statuses of runs; each scheduler gets one query for all of its runs.

    With the same `poller`, a scheduler is queried less often the longer nothing changes.

    Raises:
        CastoffError: something in their directories cannot be read.
    """
    return judge([RunRecords(run) for run in runs], poller)


def judge(runs: list[RunRecords], poller: Poller | None = None) -> list[RunStatus]:
    """Return the statuses of runs whose directories have just been read. `poller` queries their schedulers.

    Raises:
        CastoffError: something in their directories cannot be read.
    """
    views = (poller or Poller()).query(runs)
    marks = functools.cache(marked)
    found = [
        assembled(one.records, one.members, view=one)
        if (one := views.get(records.run.path))
        else _local_status(records, marks)
        for records in runs
    ]
    for records, now in zip(runs, found, strict=True):
        if needs_no_secrets(now):
            remove_secrets(records.run, now.submitted)
    return hopeless(found)


def _local_status(records: RunRecords, marks: Callable[[], Container[str]]) -> RunStatus:
    """Return the status of a run that castoff itself schedules, or of which only the records are known."""
    if not records.alive and any(not found[-1].settled for found in records.attempts.values()):
        mark = mark_of(records.run)
        alive = mark is not None and mark in marks()
        # Read the records again: the run may have ended before its process was looked for.
        records = RunRecords(records.run, held=records.held)
        records.alive = alive
    elsewhere = None if records.alive else other_host(records.run)
    return assembled(records, local_view.judge(records, elsewhere), elsewhere)


def poll(runs: list[RunDirectory], timeout: float | None = None) -> Iterator[list[RunStatus]]:
    """Yield the statuses of runs repeatedly until all are over, or `timeout` seconds have passed."""
    begun, poller = clock.now(), Poller()
    now = dict(enumerate(statuses(runs, poller)))
    reading = 0.0  # the first time it includes imports
    yield [*now.values()]
    while left := [place for place, one in now.items() if not one.over and not one.never_begins]:
        waited = clock.now() - begun
        pause = max(min(_SLOWEST_POLL, max(_POLL, waited / 50)), _PAUSE_TO_READING * reading)
        if timeout is not None:
            if waited >= timeout:
                return
            pause = min(pause, timeout - waited)
        clock.sleep(pause)
        before = clock.spent()
        now.update(zip(left, statuses([runs[place] for place in left], poller), strict=True))
        now = dict(enumerate(hopeless([*now.values()])))
        reading = clock.spent() - before
        yield [*now.values()]


def wait(run: RunDirectory, timeout: float | None = None) -> RunStatus:
    """Wait until a run is over or can never begin, or until `timeout` seconds have passed; return the run's
    status.
    """
    for (now,) in poll([run], timeout):
        last = now
    return last


def check_over(found: Iterable[RunStatus], timeout: float | None) -> None:
    """Check that runs that were waited for are over.

    Raises:
        StillRunning: a run may still be running after `timeout` seconds.
    """
    if left := [one for one in found if not (one.over or one.never_begins)]:
        raise StillRunning("\n".join(f"{one.id} is still {one.state} after {timeout:g} s" for one in left))
