"""Asking runs to stop early, so that they save their state and end."""

from __future__ import annotations

from collections.abc import Sequence

from castoff.launcher.runs.owner import other_host
from castoff.launcher.runs.run import RunDirectory, request_stop
from castoff.launcher.runs.states import RunStatus
from castoff.launcher.schedulers.registry import is_own
from castoff.launcher.status.watch import statuses


def stop(runs: Sequence[RunDirectory]) -> set[str]:
    """Ask those runs to stop that are not over; return the directories of the runs that were asked.

    Raises:
        CastoffError: something in their directories cannot be read or written.
    """
    left = [run for run, now in zip(runs, statuses(runs), strict=True) if not _is_over(run, now)]
    for run in left:
        request_stop(run)
    return {str(run.path) for run in left}


def _is_over(run: RunDirectory, now: RunStatus) -> bool:
    """Whether nothing of the run is running or can still begin; False if that cannot be known here."""
    if not is_own(now.scheduler):  # which was asked
        return now.state == "ended" and (run.submission() is not None or now.ending != "resume")
    if run.submission() is None:  # a script at work by hand may run anywhere
        return now.state == "ended" and all(member.ending != "resume" for member in now.members)
    return now.over and (now.state == "ended" or other_host(run) is None)
