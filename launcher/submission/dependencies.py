"""The field `after`: its runs and jobs, translated into a dependency for the scheduler."""

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
    """Resolve `after`: the directories of its runs by condition, and the dependency that is still open.

    The dependency is written as Slurm and PBS share it, with job ids; empty if all of it holds already,
    None if there is none. Without a `scheduler`, castoff's own waits for the runs itself.

    Raises:
        CastoffError: one is not there, can never hold, or is nothing that this scheduler can wait for.
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
            if scheduler and (found := _jobs(scheduler, condition, run, environ) if run else [name]):
                jobs.setdefault(condition, []).extend(found)
        except CastoffError as error:
            raise CastoffError(f"after.{condition}: {error}") from error
    return runs, dependency_words(jobs)


def _run(name: str, scheduler: QueuedScheduler | None, index: Index) -> RunDirectory | None:
    """The run of that name; None if it is a job id."""
    try:
        return index.find(name)
    except CastoffError:
        if scheduler and is_job_id(name):
            return None
        raise


def _jobs(
    scheduler: QueuedScheduler, condition: str, run: RunDirectory, environ: Mapping[str, str]
) -> list[str]:
    """The jobs of a run for which the condition is still open; raises if they cannot be waited for."""
    holds = condition_holds(condition, run)
    if holds is False:
        raise CastoffError(f"{run.id} is over, and not as {condition} asks: this would wait for ever")
    if holds:
        return []
    planned, submission, theirs = run.facts(), run.submission(), RunRecords(run)
    why = None
    if planned.scheduler != scheduler.name:
        why = f"it is a run of {title_of(planned.scheduler)}"
    elif theirs.queued and (elsewhere := scheduler.queue(environ).elsewhere(theirs.clusters)):
        why = elsewhere
    elif most := planned.requeue_max:
        why = f"it may be requeued (requeue.max {most}), and a job that depends on its job may begin before"
    if why:
        what = f"{scheduler.title} cannot wait for {run.id}"
        raise CastoffError(f"{what}: {why}; submit this when `castoff wait {run.id}` returns")
    jobs = [send.job for send in submission.sends if send.job] if submission else []
    if submission is None and (job := status(run).job):  # of a script that stood alone
        jobs = [job]
    if not jobs:
        raise CastoffError(f"{run.id} has no job: see `castoff status {run.id}`")
    return jobs


def condition_holds(condition: str, run: RunDirectory, poller: Poller | None = None) -> bool | None:
    """Whether a run fulfils a dependency's condition: True, False if it never will, None if not yet."""
    try:
        run.reopened()
    except CastoffError:
        return False
    now = status(run, poller)
    if condition == "after":
        return True if now.state in ("running", "ended") or now.over else None
    if not now.over:
        return None
    well = now.ending == "done"
    return condition == "afterany" or well == (condition == "afterok")
