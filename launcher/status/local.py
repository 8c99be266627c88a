"""What state the members of a run are in whose scheduler is castoff itself: the local one, or a launch in an
allocation. Its records tell, and whether its scheduler lives."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from launcher.runs.records import Ending, Facts, Failure, Start, Submission, begins, read
from launcher.runs.run import SETTLED, Run, names_in
from launcher.runs.states import AttemptStatus, MemberStatus, known_ending

_REQUEUE = "requeue"
"""A file in an attempt's folder: its local scheduler is to begin another one."""


class LocalRun(NamedTuple):
    """What the members of such a run have in common."""

    run: Run
    submission: Submission | None
    """None: castoff did not submit it."""
    plan: Facts
    alive: bool
    """Whether its scheduler lives."""
    elsewhere: str | None
    """The host to ask whether it lives, if not this one."""
    stop_asked: bool


def judge(run: LocalRun, attempts: Mapping[int, list[tuple[int, Path]]]) -> list[MemberStatus]:
    """The states of a run's members, from the folders of their attempts.

    Raises:
        CastoffError: a record cannot be read.
    """
    begin = begins(run.submission, run.plan)
    numbers = sorted({*range(run.plan.array_count or 1), *attempts})
    return [_member(run, number, attempts.get(number, []), begin.get(number)) for number in numbers]


def _member(run: LocalRun, number: int, attempts: list[tuple[int, Path]], begin: int | None) -> MemberStatus:
    """`begin`: the attempt that the newest submission starts with; None: it leaves this member alone."""
    newest = max([begin or 0, *(attempt for attempt, _ in attempts)])  # what came before is over
    found = [_attempt(run, number, attempt, folder, newest=attempt == newest) for attempt, folder in attempts]
    state: str
    ending: str | None
    if begin is not None and not found and run.submission and run.submission.error is not None:
        state, ending = "ended", "failed"
    elif begin is not None and run.alive and (not found or found[-1].attempt < begin):
        state, ending = "pending", None
    elif found:
        state, ending = found[-1].state, found[-1].ending
        if state == "ended" and not run.stop_asked and os.path.lexists(attempts[-1][1] / _REQUEUE):
            if run.alive:
                state, ending = "pending", None  # its next attempt is about to begin
            elif run.elsewhere:
                state, ending = "unknown", "unknown"  # it may be about to begin there
    else:
        state, ending = "unknown", "unknown"
    return MemberStatus(number, state, ending, found)


def _attempt(run: LocalRun, member: int, attempt: int, folder: Path, *, newest: bool) -> AttemptStatus:
    records = names_in(folder)
    alive = run.alive and newest
    start = end = failure = None
    if "start.json" in records:
        start = read(folder / "start.json", Start)
    # Until its scheduler has settled it, an ending is believed only if no scheduler is there to do so.
    if "ending.json" in records and (SETTLED in records or not (newest and (alive or run.elsewhere))):
        end = read(folder / "ending.json", Ending)
    if "failure.json" in records:
        failure = read(folder / "failure.json", Failure)
    return AttemptStatus(
        attempt=attempt,
        state="ended" if end else "running" if alive else "unknown",
        ending=known_ending(end.ending) if end else None if alive else "unknown",
        code=end.code if end else None,
        reason=end.reason if end else None,
        host=start.host if start else None,
        started=start.time if start else None,
        ended=end.time if end else None,
        failure=failure,
        logs=f"{run.run.path}/logs/{member}.{attempt}",
    )
