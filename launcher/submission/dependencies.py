"""What a run waits for: `after`, with runs by name, as its scheduler is told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from launcher.errors import CastoffError
from launcher.runs.index import Index
from launcher.runs.run import Run
from launcher.schedulers.directives import is_job_id
from launcher.schedulers.registry import queued, queued_of, title_of
from launcher.status.survey import survey
from launcher.status.watch import condition_holds, status


class Awaited(NamedTuple):
    """What a run waits for."""

    runs: dict[str, list[str]]
    """Run directories by condition."""
    words: str | None
    """The dependency as Slurm and PBS both spell it, with ids; empty where all of it has held, None where
    there is none."""


def resolve(after: Mapping[str, list[str]], scheduler: str, environ: Mapping[str, str]) -> Awaited:
    """The runs and jobs that `after` names; on Slurm or PBS, what of it has held already is left out.

    Raises:
        CastoffError: one is not there, can never hold, or is nothing that this scheduler can wait for.
    """
    if not after:
        return Awaited({}, None)
    index = Index.of(environ)
    runs: dict[str, list[str]] = {}
    words: list[str] = []
    for condition, names in after.items():
        jobs: list[str] = []
        for name in names:
            try:
                jobs += _resolve(scheduler, condition, name, index, runs, environ)
            except CastoffError as error:
                raise CastoffError(f"after.{condition}: {error}") from error
        if jobs:
            words.append(":".join([condition, *jobs]))
    return Awaited(runs, ",".join(words))


def _resolve(
    scheduler: str,
    condition: str,
    name: str,
    index: Index,
    runs: dict[str, list[str]],
    environ: Mapping[str, str],
) -> list[str]:
    """The jobs of one entry, if its condition is still open; a run is added to `runs`."""
    try:
        run = index.find(name)
    except CastoffError:
        if queued(scheduler) and is_job_id(name):
            return [name]
        raise
    runs.setdefault(condition, []).append(str(run.path))
    if queued(scheduler) is None:
        return []
    holds = condition_holds(condition, run)
    if holds is False:
        raise CastoffError(f"{run.id} is over, and not as {condition} asks: this would wait for ever")
    return [] if holds else _jobs(scheduler, run, environ)


def _jobs(scheduler: str, run: Run, environ: Mapping[str, str]) -> list[str]:
    """The jobs of a run that is not over.

    Raises:
        CastoffError: this scheduler cannot wait for it.
    """
    planned, submission = run.facts(), run.submission()
    theirs = planned.scheduler
    if theirs != scheduler:
        raise CastoffError(
            f"{run.id} is a run of {title_of(theirs)}, for which {title_of(scheduler)} cannot wait; "
            f"submit this when `castoff wait {run.id}` returns"
        )
    queued = survey(run).queued
    if queued and (elsewhere := queued_of(scheduler).queue(environ).elsewhere(queued.clusters)):
        raise CastoffError(
            f"{run.id}: {title_of(scheduler)} cannot wait for it: {elsewhere}, or submit this when "
            f"`castoff wait {run.id}` returns"
        )
    if most := planned.requeue_max:
        raise CastoffError(
            f"{run.id} may be started again (requeue.max {most}), and whoever waits for its job may begin "
            f"before its work is done; submit this when `castoff wait {run.id}` returns"
        )
    jobs = [send.job for send in submission.sends if send.job] if submission else []
    if submission is None and (job := status(run).job):  # of a script that stood alone
        jobs = [job]
    if not jobs:
        raise CastoffError(f"{run.id} has no job: see `castoff status {run.id}`")
    return jobs
