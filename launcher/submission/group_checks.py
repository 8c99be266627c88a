"""What is checked of a group's jobs before the first is sent. All problems are reported at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_group import JobGroup, name_of
from castoff.launcher.config.site import Site
from castoff.launcher.errors import CastoffError, InvalidInput, Problem
from castoff.launcher.planning.planner import decide
from castoff.launcher.runs.index import Index
from castoff.launcher.runs.plan import Plan
from castoff.launcher.runs.secrets import secrets
from castoff.launcher.schedulers.base import QueuedScheduler, Scheduler
from castoff.launcher.schedulers.dialect import is_job_id
from castoff.launcher.schedulers.registry import scheduler_of
from castoff.launcher.submission.caller import Placing
from castoff.launcher.submission.dependencies import cannot_wait, condition_holds, unpaired
from castoff.launcher.submission.submit import checked
from castoff.launcher.typed.suggestion import did_you_mean


def check_plans(jobs: JobGroup, site: Site) -> None:
    """Check all that does not depend on this host or its scheduler.

    Raises:
        InvalidInput: with every problem of the jobs.
    """
    index = Index.of(os.environ)
    _collected(jobs, index, lambda spec: decide(spec, site), asks=False)


def check_jobs(
    jobs: JobGroup, site: Site, index: Index, runs_dir: Path | None, place: Placing
) -> dict[str, JobSpec]:
    """Check all that can be checked before the first job is sent; return the jobs by name.

    Raises:
        InvalidInput: with every problem of the jobs.
        CastoffError: this host cannot submit them.
    """

    def plan(spec: JobSpec) -> tuple[Plan, Scheduler]:
        with place(spec) as placed:
            secrets(placed.spec.env_from, placed.environ)
            found = checked(placed.spec, site, runs_dir=runs_dir, environ=placed.environ)
        return found.plan, scheduler_of(site.scheduler)

    _collected(jobs, index, plan, asks=True)
    return {name_of(spec): spec for spec in jobs.jobs}


def _collected(
    jobs: JobGroup, index: Index, plan: Callable[[JobSpec], tuple[Plan, Scheduler]], *, asks: bool
) -> None:
    """Plan all jobs, check their dependencies, and raise all problems at once."""
    problems: list[Problem] = []
    plans: dict[str, Plan] = {}
    names = {*jobs.names}
    for spec in jobs.jobs:
        try:
            plans[name_of(spec)], scheduler = plan(spec)
        except InvalidInput as error:
            problems += error.problems
        else:
            queue = scheduler if isinstance(scheduler, QueuedScheduler) else None
            problems += _of_dependencies(spec, queue, plans, names, index, asks=asks)
    if problems:
        raise InvalidInput(list(dict.fromkeys(problems)))


def _of_dependencies(
    spec: JobSpec,
    scheduler: QueuedScheduler | None,
    plans: Mapping[str, Plan],
    names: set[str],
    index: Index,
    *,
    asks: bool,
) -> Iterator[Problem]:
    """Yield the problems of the runs and jobs for which a job waits. `plans`: those made so far; `names`:
    those of all jobs of the group; `asks`: whether the states of runs are asked for.
    """
    for condition, awaited in spec.after.items():
        for number, name in enumerate(awaited):
            why = None
            if name in plans:
                other = plans[name]
                why = scheduler and cannot_wait(scheduler, condition, other)
                message = f"is {name}, for which {scheduler.title if scheduler else ''} cannot wait: {why}"
                message += f"; drop it there, or submit this job later by --only {name_of(spec)}"
                if condition == "aftercorr" and (problem := unpaired(plans[name_of(spec)], other)):
                    why, message = problem, f"is {name}, which {problem}"
            elif name not in names and not (scheduler and is_job_id(name)):
                try:
                    run = index.find(name)
                except CastoffError as error:
                    why = did_you_mean(name, names - {name_of(spec)}) or f": {error}"
                    message = f"is {name}, which is neither a job of this group nor a run{why}"
                else:
                    if asks and condition_holds(condition, run) is False:
                        why = f"is {name}, whose newest run {run.id} is over and not as {condition} requires"
                        message = f"{why}: `castoff resubmit {run.id}` starts it again"
            if why:
                where = spec.source.where(("after", condition, number)) if spec.source else name_of(spec)
                yield Problem(where, f"after.{condition}.{number}", message)
