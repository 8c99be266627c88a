"""When a run starts again, within its job or by a requeue, and what the run's hosts must provide. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_fields import BY_SCHEDULER
from castoff.launcher.config.quantities import seconds, signal_and_time, size
from castoff.launcher.config.site import Site
from castoff.launcher.runs.plan import PreflightPlan, RestartPlan
from castoff.launcher.schedulers.base import Scheduler
from castoff.launcher.typed.suggestion import setting

_NOT_RESTARTED = [2, 126, 127]
"""Exit codes of a program that was called wrongly or does not exist, for which a restart would fail the same
way.
"""


def restarts(spec: JobSpec) -> RestartPlan | None:
    """Return the job's plan for restarts and hangs; None: the job requests neither."""
    asked = spec.restart
    hang = seconds(asked.hang) if asked.hang else None
    if not asked.max and hang is None:
        return None
    never = _NOT_RESTARTED if asked.never is None else asked.never
    return RestartPlan(asked.max or 0, asked.spare_nodes or 0, hang, never)


def preflight(spec: JobSpec, site: Site, devices: int, *, whole_nodes: bool) -> PreflightPlan | None:
    """Return what each host must provide. `devices`: the number of a node's devices that the job has."""
    wanted = bool(spec.restart.spare_nodes) if spec.preflight is None else spec.preflight
    if not wanted:
        return None
    of_node = site.node.memory if site.node and whole_nodes else None
    memory = spec.memory or of_node
    own = wanted if isinstance(wanted, list) else []
    return PreflightPlan(own, devices, size(memory) // 1024 if memory else 0)


_MARGIN = 30
"""The most seconds that it takes to end the ranks, look for progress and ask the scheduler."""


def margin(spec: JobSpec, scheduler: Scheduler, walltime: int | None, grace: int) -> int | None:
    """Return how many seconds before the walltime running ranks are ended; None: they are not ended."""
    knows_end = walltime is not None or scheduler.reports_end_time
    if not knows_end or "walltime" not in spec.requeue.causes(by_scheduler=scheduler.reruns_jobs):
        return None
    before = signal_and_time(spec.signal)[1] if spec.signal else grace
    return max(min(_MARGIN, grace // 2, before // 2), 1)


def requeue_problems(
    spec: JobSpec, scheduler: Scheduler, walltime: int | None, grace: int
) -> Iterator[tuple[str, str]]:
    """Yield problems of `requeue.on` and `signal` on this scheduler."""
    asked = [cause for cause in BY_SCHEDULER if cause in (spec.requeue.on or ())]
    if scheduler.reruns_jobs and len(asked) == 1:
        (other,) = set(BY_SCHEDULER) - set(asked)
        both = f"{scheduler.title} starts a job again after both or after neither"
        yield "requeue.on", f"names {asked[0]} and not {other}, but {both}: name both, or drop {asked[0]}"
    elif asked and scheduler.has_queue and not scheduler.reruns_jobs:
        yield "requeue.on", f"names {asked[0]}, but {scheduler.title} starts no job again by itself: drop it"
    if spec.signal is None:
        return
    _, before = signal_and_time(spec.signal)
    if walltime is None and not scheduler.reports_end_time:
        yield "signal", f"needs a walltime, before which it is sent: add {setting('walltime', '1h')}"
    elif before < 1:
        yield "signal", f"is {spec.signal}, which leaves the program no time: write, say, USR1@300"
    elif walltime is not None and before >= walltime:
        yield "signal", f"is {spec.signal}, but the walltime is {walltime} s: lower it, or raise walltime"
