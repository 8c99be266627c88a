"""Ends runs through their schedulers and checks that no job is left; or asks the runs' ranks to stop early.

However many runs there are, each scheduler gets one query, as few cancel commands as possible, and then
repeated queries about all of the jobs until they are gone.
"""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from castoff.launcher import clock
from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.owner import is_alive, other_host, owns_latest_submission
from castoff.launcher.runs.records import Cancelled
from castoff.launcher.runs.run import RunDirectory, request_stop
from castoff.launcher.runs.secrets import remove_secrets
from castoff.launcher.runs.states import RunStatus
from castoff.launcher.schedulers.base_queue import Answer, Queue
from castoff.launcher.schedulers.local.control import cancel
from castoff.launcher.schedulers.registry import is_own, queued, queued_of
from castoff.launcher.status.survey import CANCELLED, RunRecords
from castoff.launcher.status.watch import status, statuses

_POLL = 0.05
_QUEUE_POLL = 0.5
_PATIENCE = 30.0
"""Seconds to wait for castoff's own scheduler, which sends TERM, then KILL, and cleans up."""


@dataclass(eq=False)
class CancelRequest:
    """The request to end one run, and its result."""

    run: RunDirectory
    before: RunStatus
    asked: bool = False
    """Whether the run had anything to end."""
    is_active: bool = False
    """Whether something of the run is still active."""
    problem: str | None = None
    """Why the run could not be cancelled, was refused, or is still active."""
    after: RunStatus | None = None
    """The run's status after the request; None if the request was not sent or was refused."""
    queue: Queue | None = None
    """The queue that was asked to end the run; None: castoff's own scheduler was asked, or none."""
    jobs: set[str] = field(default_factory=set)
    refusal: str | None = None
    """The scheduler's message if it refused to cancel jobs; the message counts only if the jobs still
    exist.
    """

    @property
    def patience(self) -> float:
        """The number of seconds within which the whole run should have ended."""
        return self.queue.cancel_patience if self.queue else _PATIENCE


def end(runs: Iterable[RunDirectory]) -> list[CancelRequest]:
    """End runs, and return the result for each run.

    Raises:
        CastoffError: a file in a run's directory cannot be read.
    """
    run_list = list(runs)
    requests = [CancelRequest(run, before) for run, before in zip(run_list, statuses(run_list), strict=True)]
    _ask(requests)
    begun = looked = clock.now()
    _look(requests)
    while left := [
        request for request in requests if request.is_active and looked - begun <= request.patience
    ]:
        poll = _QUEUE_POLL if all(request.queue for request in left) else _POLL
        clock.sleep(max(poll, clock.now() - looked))
        looked = clock.now()
        _look(left)
    for request in requests:
        if request.asked and not request.is_active:
            remove_secrets(request.run, request.before.submitted)
    _conclude([request for request in requests if not request.problem])
    return requests


def _conclude(requests: list[CancelRequest]) -> None:
    """Record each run's status after its cancellation, and a problem for each run that is not over yet."""
    for request, run_status in zip(requests, statuses(request.run for request in requests), strict=True):
        request.after = run_status
        if request.is_active:
            reason = f"; {run_status.reason}" if run_status.reason else ""
            request.problem = f"{run_status.id}: still not over after {request.patience:g} s{reason}"


def _ask(requests: list[CancelRequest]) -> None:
    """Ask schedulers to end their runs. A problem with one run does not affect the others."""
    by_scheduler: dict[str, list[CancelRequest]] = {}
    # Newest runs first, since a run may depend on an older run, and ending a run whose scheduler was killed
    # takes seconds.
    for request in sorted(requests, key=lambda request: request.before.submitted or 0.0, reverse=True):
        run, run_status = request.run, request.before
        if run_status.state == "ended":
            continue
        is_local = owns_latest_submission(run)
        if queued(run_status.scheduler) and not is_local:
            by_scheduler.setdefault(run_status.scheduler, []).append(request)
        elif run.submission() is None or not (is_local or is_own(run_status.scheduler)):
            request.problem = _by_hand(run_status)
        elif run_status.state != "unknown" or other_host(run) is not None:
            try:
                cancel(run)
                request.asked = request.is_active = True
            except CastoffError as error:
                request.problem = str(error)
    for scheduler, queued_requests in by_scheduler.items():
        _query_queue(queued_of(scheduler).queue(), queued_requests)


def _query_queue(queue: Queue, requests: list[CancelRequest]) -> None:
    """Ask a scheduler with a queue to end runs, with one query and one command for all."""
    runs = [RunRecords(request.run) for request in requests]
    reachable = [records for records in runs if not queue.elsewhere(records.clusters)]
    answer = queue.ask({job for records in reachable for job in records.jobs})
    for request, records in zip(requests, runs, strict=True):
        try:
            request.jobs = _jobs_of(request, records, queue, answer)
        except CastoffError as error:
            request.problem = str(error)
    requests = [request for request in requests if request.jobs]
    refused = cancel_jobs(queue, {request.run: request.jobs for request in requests})
    for request in requests:
        request.queue, request.asked, request.is_active = queue, True, True
        words = dict.fromkeys(refused[job] for job in sorted(request.jobs) if job in refused)
        request.refusal = "; ".join(words) or None


def cancel_jobs(queue: Queue, jobs_of: Mapping[RunDirectory, Collection[str]]) -> dict[str, str]:
    """Cancel jobs of runs, after recording that castoff does so: the scheduler may forget cancelled jobs at
    once.

    Return the jobs that the scheduler does not cancel, each with its message.

    Raises:
        CastoffError: a run directory cannot be trusted.
    """
    for run, jobs in jobs_of.items():
        _record(run, {**dict.fromkeys(jobs, time.time()), **RunRecords(run).cancelled})
    # Newest jobs first: when a job ends, another job that depends on it may start.
    ordered = sorted({job for jobs in jobs_of.values() for job in jobs}, key=lambda job: (len(job), job))
    refused = queue.cancel(ordered[::-1])
    for run, jobs in jobs_of.items():
        if not refused.keys().isdisjoint(jobs):
            before = RunRecords(run).cancelled
            _record(run, {job: asked for job, asked in before.items() if job not in refused})
    return refused


def _record(run: RunDirectory, jobs: dict[str, float]) -> None:
    # A full disk must not prevent cancelling the job that fills it.
    with contextlib.suppress(OSError):
        run.write(CANCELLED, Cancelled(jobs))


def _jobs_of(request: CancelRequest, records: RunRecords, queue: Queue, answer: Answer) -> set[str]:
    """Return the jobs of a run that have to be cancelled; raises if the jobs are not known."""
    run, run_status = request.run, request.before
    if is_alive(run):
        raise CastoffError(f"{run_status.id}: it is being submitted now; cancel it after that")
    elsewhere, silence = queue.elsewhere(records.clusters), answer.silence_on(sorted(records.jobs))
    if silence and not elsewhere and run.submission() is None:
        raise CastoffError(_by_hand(run_status))  # nothing confirms that the job belongs to this run
    if reason := elsewhere or silence:
        title = queue.title
        raise CastoffError(
            f"{run_status.id}: {title} could not be reached; the run is still active: {reason}"
        )
    left = answer.left.values()
    if run.submission() is not None:
        script = str(run.script)
        jobs = {info.job for info in left if info.runs(script)}
    else:
        infos = [info for info in left if info.job == run_status.job]
        if not all(queue.is_of(info, run) for info in infos):
            raise CastoffError(_by_hand(run_status))
        jobs = {info.job for info in infos}
    if not jobs and run_status.unsettled:
        raise CastoffError(f"{run_status.id}: {run_status.reason}")
    return jobs


def _look(requests: list[CancelRequest]) -> None:
    """Update which of the active runs have ended, with one query to each scheduler.

    castoff does not wait for a run that its scheduler refuses to end.
    """
    requests = [request for request in requests if request.is_active]
    answers = {
        queue: queue.ask({job for request in requests if request.queue is queue for job in request.jobs})
        for queue in {request.queue for request in requests if request.queue}
    }
    for request in requests:
        if request.queue is None:
            elsewhere = other_host(request.run) is not None
            request.is_active = is_alive(request.run) or (elsewhere and not status(request.run).final)
            continue
        answer = answers[request.queue]
        silent = answer.silence_on(sorted(request.jobs)) is not None
        request.is_active = silent or not request.jobs.isdisjoint(answer.left)
        if request.is_active and request.refusal:
            request.is_active, request.problem = False, f"{request.before.id}: {request.refusal}"


def _by_hand(run_status: RunStatus) -> str:
    """Return the message that tells the user how to end a run that castoff cannot end."""
    scheduler = queued(run_status.scheduler)
    job = shlex.quote(run_status.job) if run_status.job else "its job"
    advice = "end the process that runs its script"
    if scheduler is not None:
        advice = " ".join([*scheduler.queue().cancel_command, job])
    return f"{run_status.id}: castoff did not submit this run, so castoff cannot end it; {advice}"


def stop(runs: Sequence[RunDirectory]) -> set[str]:
    """Ask the runs that are not over to stop early; return the directories of these runs.

    Raises:
        CastoffError: a file in a run's directory cannot be read or written.
    """
    left = [
        run for run, run_status in zip(runs, statuses(runs), strict=True) if not _is_over(run, run_status)
    ]
    for run in left:
        request_stop(run)
    return {str(run.path) for run in left}


def _is_over(run: RunDirectory, run_status: RunStatus) -> bool:
    """Whether no part of the run is running or can still begin; False if this host cannot know."""
    if not is_own(run_status.scheduler):  # the state is the scheduler's answer
        return run_status.state == "ended" and (run.submission() is not None or run_status.ending != "resume")
    if run.submission() is None:  # a script that a user started by hand may run on any host
        return run_status.state == "ended" and all(member.ending != "resume" for member in run_status.members)
    return run_status.over and (run_status.state == "ended" or other_host(run) is None)
