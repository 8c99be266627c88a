"""Finds the allocation in which this shell is, and plans jobs on its hosts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping

import msgspec

from castoff.launcher.config.chunks import node_groups
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.config.site_fields import Node
from castoff.launcher.errors import InvalidInput, PlacementError, Problem
from castoff.launcher.launchers.commands import LAUNCHERS
from castoff.launcher.planning import planner
from castoff.launcher.ranks.decision import decide
from castoff.launcher.ranks.families import Around, Placement, innermost, read_text
from castoff.launcher.ranks.visible import shown_by
from castoff.launcher.runs.plan import Plan
from castoff.launcher.schedulers.base import Scheduler
from castoff.launcher.schedulers.base_allocation import Allocation
from castoff.launcher.schedulers.registry import HAVE_DIRECTIVES, NAMES, queued, queued_of
from castoff.launcher.typed.document import Document
from castoff.launcher.typed.structure import fields_of

_HERE_TOO = frozenset(
    {
        *("name", "nodes", "cores_per_rank", "devices_per_rank", "binding", "walltime", "grace", "options"),
        *("env_from", "launcher"),
    }
)
"""Job fields for a scheduler that castoff itself applies inside an allocation."""


def submission_only(spec: JobSpec) -> list[str]:
    """The job's fields that have no effect inside an allocation, since only a scheduler applies them, in
    the order of the job file.
    """
    handled = {field.partition(".")[0] for name in HAVE_DIRECTIVES for field in queued_of(name).handles}
    heeded = _HERE_TOO | {"select"} if node_groups(spec.select) else _HERE_TOO
    return [name for name in fields_of(JobSpec) if name in handled - heeded]


def find(environ: Mapping[str, str], read_file: Callable[[str], str] = read_text) -> list[Allocation]:
    """Find the allocations that this environment describes: at most one for each scheduler.

    Raises:
        CastoffError: the variables show an allocation, but not its hosts.
    """
    schedulers = (queued(name) for name in NAMES)
    allocations = (one.allocation(environ, read_file) for one in schedulers if one is not None)
    return [allocation for allocation in allocations if allocation is not None]


def rank_here(environ: Mapping[str, str], read_file: Callable[[str], str] = read_text) -> Placement | None:
    """This process's rank, if it is already one of several; else None.

    Variables that no launcher has set do not count, since scripts clear them.
    """
    around = Around(environ, read_file)
    placement = None
    with contextlib.suppress(PlacementError):
        placement = innermost(around)
        if placement is None and "CASTOFF_RANK" in around:
            placement = decide(around)
    return None if placement is None or placement.world_size == 1 else placement


def plan_in(
    allocation: Allocation, spec: JobSpec, site: Site, environ: Mapping[str, str]
) -> tuple[Plan, Scheduler]:
    """Plan a job on the hosts of an allocation, by default on all of them.

    Raises:
        InvalidInput: the job needs more than the allocation has, or cannot run on this site.
    """
    job, site_here = _job_in(allocation, spec, site, environ)
    decided, scheduler = planner.decide(job, site_here)
    timeout = spec.launcher.timeout or site.defaults.launcher.timeout
    counts = [count for count, times in decided.layout for _ in range(times)]
    shares = [cpus // count for cpus, count in zip(allocation.cpus, counts, strict=False)]
    share = min(shares, default=0)  # CPUs for each rank; 0 if the scheduler does not report them
    requested_cores = spec.cores_per_rank or site.defaults.cores_per_rank
    if share and not requested_cores and (decided.cores_per_rank is None or decided.cores_per_rank > share):
        decided = planner.plan(job.changed(cores_per_rank=share), site_here)
    if timeout is None:  # ranks may have to wait until another launch ends
        decided = msgspec.structs.replace(decided, start_timeout=None)
    if LAUNCHERS[decided.launcher].heeds_cpus(decided.start):
        _check_cpus(allocation, decided, counts)
    _check_devices(allocation, decided, counts)
    return decided, scheduler


def _check_cpus(allocation: Allocation, decided: Plan, counts: list[int]) -> None:
    """Reject a plan that needs more CPUs on a host than it has: the launcher would reject it, or place
    ranks otherwise.
    """
    cores = decided.cores_per_rank or 1
    for host, cpus, count in zip(allocation.hosts, allocation.cpus, counts, strict=False):
        tasks = 1 if decided.torchrun and decided.cores_per_rank is None else count
        if tasks * cores > cpus:
            each = f" with {cores} cores each" if cores > 1 else ""
            message = (
                f"{_ranks(count)} on a host{each} need {tasks * cores} CPUs, but {allocation} has {cpus} on "
                f"{host}: start fewer, or ask for more "
                f"({allocation.larger(decided.nodes, count, cores, decided.devices_per_rank)})"
            )
            raise InvalidInput([Problem(f"{decided.name} on {decided.site}", "", message)])


def _check_devices(allocation: Allocation, decided: Plan, counts: list[int]) -> None:
    """Reject a plan that needs more devices on a host than it has."""
    each = decided.devices_per_rank
    for host, devices, count in zip(allocation.hosts, allocation.device_counts, counts, strict=False):
        if count * each > devices:
            larger = allocation.larger(decided.nodes, count, decided.cores_per_rank or 1, each)
            message = (
                f"{_ranks(count)} on a host with {each} devices each need {count * each} devices, but "
                f"{allocation} has {devices} on {host}: start fewer, or ask for more ({larger})"
            )
            raise InvalidInput([Problem(f"{decided.name} on {decided.site}", "", message)])


def _ranks(count: int) -> str:
    return f"{count} {'rank' if count == 1 else 'ranks'}"


def _job_in(
    allocation: Allocation, spec: JobSpec, site: Site, environ: Mapping[str, str]
) -> tuple[JobSpec, Site]:
    """The job and the site, without the fields that only a submission needs."""
    nodes = _nodes(allocation, spec)
    blank = {name: getattr(JobSpec(), name) for name in submission_only(spec)}
    changes = {**blank, "nodes": nodes, "inherit": "all"}
    if node_groups(spec.select):  # the groups set the number of ranks on each host
        changes["nodes"] = None
    if allocation.reports_end_time:
        changes["walltime"] = None
    changes |= _devices(allocation, spec, site, environ)
    threads = allocation.threads(environ)
    if threads and "OMP_NUM_THREADS" not in {**site.env, **site.defaults.env, **spec.env}:
        changes["env"] = {**spec.env, "OMP_NUM_THREADS": threads}
    if nodes < len(allocation.hosts):
        hosts = LAUNCHERS[spec.launcher.name or site.launcher].only_on(allocation.hosts[:nodes])
        changes["launcher"] = msgspec.structs.replace(spec.launcher, args=[*spec.launcher.args, *hosts])
    defaults = msgspec.structs.replace(site.defaults, **blank, walltime=None)
    return spec.changed(**changes), msgspec.structs.replace(
        site,
        required=[],
        queues={},
        queue_choice=[],
        other_queues=True,
        array=None,
        directives={},
        defaults=defaults,
        request_form="select",
    )


def _devices(allocation: Allocation, spec: JobSpec, site: Site, environ: Mapping[str, str]) -> dict[str, int]:
    """The fields for devices and ranks, if hosts have fewer devices than the site's nodes."""
    if not site.node or not site.node.device_count or node_groups(spec.select):
        return {}
    available = _given(allocation, site.node, environ)
    if available is None or available >= site.node.device_count:
        return {}
    each = spec.devices_per_rank
    if spec.launcher.driver and each is None:
        return {"devices_per_rank": available}
    if each and each > available:
        message = f"is {each}, but {allocation} has {available} on a host: ask for fewer, or allocate more"
        where = (spec.source or Document({}, "the job")).where(("devices_per_rank",))
        raise InvalidInput([Problem(where, "devices_per_rank", message)])
    if each is None:
        each = site.defaults.devices_per_rank
    fields = {} if available else {"devices_per_rank": 0}
    if each == 0 or any(one.ranks or one.ranks_per_node for one in (spec, site.defaults)):
        return fields
    return {**fields, "ranks_per_node": max(available // (each or 1), 1)}


def _given(allocation: Allocation, node: Node, environ: Mapping[str, str]) -> int | None:
    """The devices of each host: those the scheduler reports, limited to those visible in this shell."""
    reported, name = allocation.devices(environ, node), node.device_variable
    if name is None or node.device_names or (mask := environ.get(name)) is None:
        return reported
    if not mask and name != "CUDA_VISIBLE_DEVICES":  # empty, it hides all devices: PBS's hook sets it so
        return reported
    return min(shown_by(mask) if mask else 0, node.device_count if reported is None else reported)


def _nodes(allocation: Allocation, spec: JobSpec) -> int:
    count = len(allocation.hosts)
    source = spec.source or Document({}, "the job")
    if several := sum(group.nodes for group in node_groups(spec.select)):
        if several > count:
            message = f"asks for {several} nodes, but {allocation} has {count}: ask for a larger allocation"
            raise InvalidInput([Problem(source.where(("select",)), "select", message)])
        return several
    if spec.nodes is None:
        return min(count, spec.ranks or count)
    if spec.nodes > count:
        scheduler = queued(allocation.scheduler)
        larger = f", or for a larger allocation ({scheduler.interactive} …)" if scheduler else ""
        message = (
            f"is {spec.nodes}, but {allocation} has only {count}: ask for at most that many "
            f"(--nodes {count}){larger}"
        )
        raise InvalidInput([Problem(source.where(("nodes",)), "nodes", message)])
    return spec.nodes
