"""Translates the field `after`, with its runs and jobs, into a dependency for the scheduler."""

from __future__ import annotations

from collections.abc import Mapping

from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.schedulers.base import QueuedScheduler
from castoff.launcher.schedulers.dialect import dependency_words, is_job_id
from castoff.launcher.schedulers.registry import title_of
from castoff.launcher.status.poller import Poller
from castoff.launcher.status.survey import RunRecords
from castoff.launcher.status.watch import status


def resolve(
    after: Mapping[str, list[str]], scheduler: QueuedScheduler | None, environ: Mapping[str, str]
) -> tuple[dict[str, list[str]], str | None]:
    """Resolve `after` into the directories of its runs, by condition, and the dependency that is still open.

    The dependency is in the syntax that Slurm and PBS share, with job ids; empty if all conditions hold
    already, None if there are no conditions. Without a `scheduler`, castoff's own scheduler waits for the
    runs.

    Raises:
        CastoffError: a run does not exist, a condition can never hold, or the scheduler cannot wait for it.
    """
    if not after:
        return {}, None
    index = Index.of(environ)
    runs: dict[str, list[str]] = {}
    jobs: dict[str, list[str]] = {}
    for condition, name in ((condition, name) for condition, names in after.items() for name in names):
        try:
            if run := _run(name, scheduler, index):
                runs.setdefault(condition, []).append(str(run.path))
            if scheduler and (open_jobs := _jobs(scheduler, condition, run, environ) if run else [name]):
                jobs.setdefault(condition, []).extend(open_jobs)
        except CastoffError as error:
            raise CastoffError(f"after.{condition}: {error}") from error
    return runs, dependency_words(jobs)


def _run(name: str, scheduler: QueuedScheduler | None, index: Index) -> RunDirectory | None:
    """Return the run that an entry names; None if the entry is a job id."""
    try:
        return index.find(name)
    except CastoffError:
        if scheduler and is_job_id(name):
            return None
        raise


def _jobs(
    scheduler: QueuedScheduler, condition: str, run: RunDirectory, environ: Mapping[str, str]
) -> list[str]:
    """Return the jobs of a run for which the condition is still open; raises if the scheduler cannot wait for
    them.
    """
    holds = condition_holds(condition, run)
    if holds is False:
        raise CastoffError(f"{run.id} is over, and can no longer meet {condition}: this would wait for ever")
    if holds:
        return []
    planned, submission, records = run.facts(), run.submission(), RunRecords(run)
    reason = None
    if planned.scheduler != scheduler.name:
        reason = f"it is a run of {title_of(planned.scheduler)}"
    elif records.queued and (elsewhere := scheduler.queue(environ).elsewhere(records.clusters)):
        reason = elsewhere
    elif most := planned.requeue_max:
        reason = (
            f"it may be requeued (requeue.max {most}), and a job that depends on its job may begin before"
        )
    if reason:
        problem = f"{scheduler.title} cannot wait for {run.id}"
        raise CastoffError(f"{problem}: {reason}; submit this job when `castoff wait {run.id}` returns")
    jobs = [send.job for send in submission.sends if send.job] if submission else []
    if submission is None and (job := status(run).job):  # a script that was submitted without castoff
        jobs = [job]
    if not jobs:
        raise CastoffError(f"{run.id} has no job: see `castoff status {run.id}`")
    return jobs


def condition_holds(condition: str, run: RunDirectory, poller: Poller | None = None) -> bool | None:
    """Whether a run meets a dependency's condition: True; False if it never will; None if it does not yet."""
    try:
        run.reopened()
    except CastoffError:
        return False
    run_status = status(run, poller)
    if condition == "after":
        return True if run_status.state in ("running", "ended") or run_status.over else None
    if not run_status.over:
        return None
    is_done = run_status.ending == "done"
    return condition == "afterany" or is_done == (condition == "afterok")
