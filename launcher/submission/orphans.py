"""Orphans: jobs whose run directory is gone. The scheduler still knows the path of such a job's script."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from castoff.launcher import clock
from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.index import Entry
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.schedulers.base_queue import Queue
from castoff.launcher.schedulers.command import SchedulerUnreachable
from castoff.launcher.schedulers.job_info import JobInfo
from castoff.launcher.schedulers.registry import HAVE_DIRECTIVES, queued, queued_of
from castoff.launcher.text.words import named

_POLL = 0.5


class Orphans(NamedTuple):
    """What schedulers reported about a run whose directory is gone."""

    id: str
    path: Path
    found: list[tuple[Queue, list[JobInfo]]]
    """The run's jobs that are not over, by queue."""
    asked: list[str]
    """The schedulers that answered."""
    silent: list[str]
    """Messages about the schedulers that did not answer, each with the reason and commands for the user."""

    @property
    def gone(self) -> str:
        """The first part of the message, which is always true."""
        return f"{self.id}: its directory {self.path} is gone"

    @property
    def words(self) -> str:
        """The message: which jobs were found, and what the user can do."""
        parts = [
            f"{queue.title} still has its {_jobs_words(jobs)}; `castoff cancel {shlex.quote(self.id)}` or "
            f"`{_by_hand(queue, jobs)}` ends {'it' if len(jobs) == 1 else 'them'}"
            for queue, jobs in self.found
        ]
        parts += self.silent
        if not self.found and self.asked:
            parts.append(f"{' and '.join(self.asked)} has no waiting or running job of it")
        if not self.found:
            parts.append("if it was moved, name its new path, or let `castoff list --scan FOLDER` find it")
        return "; ".join([self.gone, *parts])


def look_for(entry: Entry) -> Orphans:
    """Look for jobs of a run whose directory is gone: in the run's scheduler; if that is unknown, in all
    schedulers of this host.

    castoff's own scheduler ends a run whose directory is gone.
    """
    path = Path(entry.path)
    orphans = Orphans(entry.id, path, [], [], [])
    for queue in _queues(entry.scheduler):
        try:
            jobs = _jobs_of(queue, path)
        except SchedulerUnreachable as error:
            by_hand = f"end a job of {RunDirectory(path).script} with {shlex.join(queue.cancel_command)}"
            orphans.silent.append(f"{queue.title} could not be asked for its jobs ({error}): {by_hand}")
        else:
            orphans.asked.append(queue.title)
            if jobs:
                orphans.found.append((queue, jobs))
    return orphans


def end(orphans: Orphans) -> str:
    """End the jobs that were found, wait until they are gone, and return a message about what was done.

    Raises:
        CastoffError: no jobs were found, or a job is left.
    """
    if not orphans.found or orphans.silent:
        raise CastoffError(orphans.words)
    for queue, jobs in orphans.found:
        refused = queue.cancel([job.job for job in jobs])
        begun = clock.now()
        while left := _left(queue, orphans.path):
            if refused or clock.now() - begun > queue.cancel_patience:
                reason = (
                    "; ".join(dict.fromkeys(refused.values()))
                    or f"not over {queue.cancel_patience:g} s later"
                )
                raise CastoffError(
                    f"{orphans.gone}, and {queue.title} still has its {_jobs_words(left)}: {reason}; "
                    f"try `{_by_hand(queue, left)}`"
                )
            clock.sleep(_POLL)
    ended = ", ".join(f"{_jobs_words(jobs)} ({queue.title})" for queue, jobs in orphans.found)
    return f"{orphans.gone}; ended its {ended}"


def _left(queue: Queue, path: Path) -> list[JobInfo]:
    try:
        return _jobs_of(queue, path)
    except SchedulerUnreachable as error:
        raise CastoffError(
            f"{path.name}: {queue.title} could not be asked whether its jobs are over: {error}"
        ) from error


def _queues(scheduler: str | None) -> Iterator[Queue]:
    """Yield the queues to ask; if the scheduler is unknown, all queues whose commands exist on this host."""
    if scheduler is not None:
        known = queued(scheduler)
        yield from [known.queue()] if known else []
        return
    for name in HAVE_DIRECTIVES:
        queue = queued_of(name).queue()
        if shutil.which(queue.cancel_command[0]):
            yield queue


def _jobs_of(queue: Queue, path: Path) -> list[JobInfo]:
    """Return this user's jobs with exactly this script, whose path contains the id of the run.

    Raises:
        SchedulerUnreachable: the scheduler does not answer.
    """
    script = str(RunDirectory(path).script)
    infos = [
        info
        for info in queue.unfinished(script)
        if info.script == script or info.script.endswith(f" {script}")
    ]
    return [*{info.job: info for info in infos}.values()]


def _jobs_words(jobs: list[JobInfo]) -> str:
    return named("job", [job.job for job in jobs])


def _by_hand(queue: Queue, jobs: list[JobInfo]) -> str:
    return shlex.join([*queue.cancel_command, *(job.job for job in jobs)])
