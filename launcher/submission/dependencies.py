"""Translates the field `after`, with its runs and jobs, into a dependency for the scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from castoff.launcher.config.array_indices import members_range
from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.records import Facts
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import RunStatus
from castoff.launcher.schedulers.base import QueuedScheduler
from castoff.launcher.schedulers.dialect import dependency_words, is_job_id
from castoff.launcher.schedulers.registry import title_of
from castoff.launcher.status.poller import Poller
from castoff.launcher.status.survey import RunRecords
from castoff.launcher.status.watch import status


class Awaited(NamedTuple):
    """The runs and jobs of a field `after`."""

    runs: dict[str, list[str]]
    """The directories of the runs, by condition."""
    dependency: str | None
    """What is still open, in the syntax that Slurm and PBS share, with job ids; empty if all conditions hold
    already, None if there are no conditions.
    """
    named: dict[str, Path]
    """The directory of each run by the name that `after` gives it."""


def resolve(
    after: Mapping[str, list[str]],
    scheduler: QueuedScheduler | None,
    environ: Mapping[str, str],
    of_group: Mapping[str, Path] = MappingProxyType({}),
) -> Awaited:
    """Resolve `after` into runs and jobs. `of_group`: the directories of runs of the same group, whose names
    win over those of other runs. Without a `scheduler`, castoff's own scheduler waits for the runs.

    Raises:
        CastoffError: a run does not exist, a condition can never hold, or the scheduler cannot wait for it.
    """
    if not after:
        return Awaited({}, None, {})
    index = Index.of(environ)
    named: dict[str, Path] = {}
    runs: dict[str, list[str]] = {}
    jobs: dict[str, list[str]] = {}
    for condition, name in ((condition, name) for condition, names in after.items() for name in names):
        try:
            of_ours = of_group.get(name)
            if run := RunDirectory(of_ours) if of_ours else _run(name, scheduler, index):
                named[name] = run.path
                runs.setdefault(condition, []).append(str(run.path))
            if scheduler and (open_jobs := _jobs(scheduler, condition, run, environ) if run else [name]):
                jobs.setdefault(condition, []).extend(open_jobs)
        except CastoffError as error:
            raise CastoffError(f"after.{condition}: {error}") from error
    return Awaited(runs, dependency_words(jobs), named)


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
    else:
        reason = cannot_wait(scheduler, condition, planned)
    if reason:
        problem = f"{scheduler.title} cannot wait for {run.id}"
        raise CastoffError(f"{problem}: {reason}; submit this job when `castoff wait {run.id}` returns")
    jobs = [send.job for send in submission.sends if send.job] if submission else []
    if submission is None and (job := status(run).job):  # a script that was submitted without castoff
        jobs = [job]
    if not jobs:
        raise CastoffError(f"{run.id} has no job: see `castoff status {run.id}`")
    return jobs


def cannot_wait(scheduler: QueuedScheduler, condition: str, planned: Facts) -> str | None:
    """Return why a scheduler cannot wait for a run with this plan; None if it can."""
    if not planned.requeue_max or scheduler.waits_for_requeued:
        return None
    most = planned.requeue_max
    return f"it may be requeued (requeue.max {most}), and a job that depends on its job may begin before"


def check_pairs(planned: Facts, after: Mapping[str, list[str]]) -> None:
    """Check that the runs of `aftercorr` have the members of the array that waits for them.

    Raises:
        CastoffError: a run has others, or its scheduler has numbered them in its own way.
    """
    for other in map(RunDirectory, map(Path, after.get("aftercorr", []))):
        if problem := unpaired(planned, other.facts()):
            raise CastoffError(f"after.aftercorr: {other.id} {problem}")
        record = other.submission()
        if record and len(record.sends) > 1:
            parts = f"was submitted as {len(record.sends)} arrays, so that its members have other numbers"
            raise CastoffError(f"after.aftercorr: {other.id} {parts}; write afterok")


def unpaired(planned: Facts, other: Facts) -> str | None:
    """Why the members of another array cannot be paired with those of an array; None if they can."""
    if other.array_count is None:
        return "is not an array, so its members cannot be paired: write afterok"
    if planned.sharing or other.sharing:
        return "or this job has array.together, and only members with jobs of their own are paired"
    if [*other.members] != [*planned.members]:
        its, ours = members_range(other.members), members_range(planned.members)
        return f"has members {its}, but this job has {ours}, and aftercorr pairs equal numbers"
    return None


def condition_holds(
    condition: str, run: RunDirectory, poller: Poller | None = None, *, member: int | None = None
) -> bool | None:
    """Whether a run meets a dependency's condition: True; False if it never will; None if it does not yet.

    `member`: with `aftercorr`, the member in question; None: any.
    """
    try:
        run.reopened()
    except CastoffError:
        return False
    run_status = status(run, poller)
    if condition == "after":
        return True if run_status.state in ("running", "ended") or run_status.over else None
    if condition == "aftercorr":
        return _pair_holds(run_status, member)
    if not run_status.over:
        return None
    is_done = run_status.ending == "done"
    return condition == "afterany" or is_done == (condition == "afterok")


def _pair_holds(run_status: RunStatus, member: int | None) -> bool | None:
    """The same for `aftercorr` and one member; for all: True if all are done, False if none ever will be."""
    endings = [one.ending for one in run_status.members if member in (None, one.member)]
    if endings and all(ending == "done" for ending in endings):
        return True
    never = run_status.over or all(ending in ("failed", "out-of-memory", "cancelled") for ending in endings)
    return False if never and "done" not in endings else None
