"""Allocations: the hosts that a scheduler has given to this shell, and a job on them."""

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
"""Fields for a scheduler that castoff also applies itself inside an allocation."""


def submission_only(spec: JobSpec) -> list[str]:
    """The job's other fields for a scheduler, in the order of its file: they have no effect inside an
    allocation."""
    said = {field.partition(".")[0] for one in map(queued_of, HAVE_DIRECTIVES) for field in one.handles}
    heeded = _HERE_TOO | {"select"} if node_groups(spec.select) else _HERE_TOO
    return [name for name in fields_of(JobSpec) if name in said - heeded]


def find(environ: Mapping[str, str], read_file: Callable[[str], str] = read_text) -> list[Allocation]:
    """Find the allocations that this environment describes: none, one, or one of each scheduler.

    Raises:
        CastoffError: the variables show one, but not which hosts it has.
    """
    known = (queued(name) for name in NAMES)
    found = (one.allocation(environ, read_file) for one in known if one is not None)
    return [one for one in found if one is not None]


def rank_here(environ: Mapping[str, str], read_file: Callable[[str], str] = read_text) -> Placement | None:
    """This process's place if it is one of several ranks already; None if it is not.

    Variables that were left over or set by hand, without a launcher, make no rank: a script clears them.
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
    """Plan a job on the hosts of an allocation; by default on all of them.

    Raises:
        InvalidInput: it asks for more than there is, or cannot run on that site at all.
    """
    job, here = _job_in(allocation, spec, site, environ)
    decided, scheduler = planner.decide(job, here)
    timeout = spec.launcher.timeout or site.defaults.launcher.timeout
    counts = [count for count, times in decided.layout for _ in range(times)]
    shares = [cpus // count for cpus, count in zip(allocation.cpus, counts, strict=False)]
    share = min(shares, default=0)  # of the CPUs that it has given; none where it does not say
    asked = spec.cores_per_rank or site.defaults.cores_per_rank
    if share and not asked and (decided.cores_per_rank is None or decided.cores_per_rank > share):
        decided = planner.plan(job.changed(cores_per_rank=share), here)
    if timeout is None:  # its ranks may well have to wait for those of another launch
        decided = msgspec.structs.replace(decided, start_timeout=None)
    if LAUNCHERS[decided.launcher].heeds_cpus(decided.start):
        _check_cpus(allocation, decided, counts)
    _check_devices(allocation, decided, counts)
    return decided, scheduler


def _check_cpus(allocation: Allocation, decided: Plan, counts: list[int]) -> None:
    """Refuse more ranks or cores on a host than it has CPUs, which the launcher would refuse or place
    differently."""
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
    """Refuse more devices on a host than it has."""
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
    """The job and the site without the fields that only a submission needs."""
    nodes = _nodes(allocation, spec)
    blank = {name: getattr(JobSpec(), name) for name in submission_only(spec)}
    own = {**blank, "nodes": nodes, "inherit": "all"}
    if node_groups(spec.select):  # which say how many ranks each host has
        own["nodes"] = None
    if allocation.reports_end_time:
        own["walltime"] = None
    own |= _devices(allocation, spec, site, environ)
    threads = allocation.threads(environ)
    if threads and "OMP_NUM_THREADS" not in {**site.env, **site.defaults.env, **spec.env}:
        own["env"] = {**spec.env, "OMP_NUM_THREADS": threads}
    if nodes < len(allocation.hosts):
        hosts = LAUNCHERS[spec.launcher.name or site.launcher].only_on(allocation.hosts[:nodes])
        own["launcher"] = msgspec.structs.replace(spec.launcher, args=[*spec.launcher.args, *hosts])
    defaults = msgspec.structs.replace(site.defaults, **blank, walltime=None)
    return spec.changed(**own), msgspec.structs.replace(
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
    """The fields for devices and ranks, if the hosts have fewer devices than the site's nodes."""
    if not site.node or not site.node.device_count or node_groups(spec.select):
        return {}
    given = _given(allocation, site.node, environ)
    if given is None or given >= site.node.device_count:
        return {}
    each = spec.devices_per_rank
    if spec.launcher.driver and each is None:
        return {"devices_per_rank": given}
    if each and each > given:
        message = f"is {each}, but {allocation} has {given} on a host: ask for fewer, or allocate more"
        where = (spec.source or Document({}, "the job")).where(("devices_per_rank",))
        raise InvalidInput([Problem(where, "devices_per_rank", message)])
    if each is None:
        each = site.defaults.devices_per_rank
    own = {} if given else {"devices_per_rank": 0}
    if each == 0 or any(one.ranks or one.ranks_per_node for one in (spec, site.defaults)):
        return own
    return {**own, "ranks_per_node": max(given // (each or 1), 1)}


def _given(allocation: Allocation, node: Node, environ: Mapping[str, str]) -> int | None:
    """The devices of each host: as the scheduler reports, and no more than this shell sees."""
    given, name = allocation.devices(environ, node), node.device_variable
    if name is None or node.device_names or (mask := environ.get(name)) is None:
        return given
    if not mask and name != "CUDA_VISIBLE_DEVICES":  # whose empty text hides all: PBS's hook sets it so
        return given
    return min(shown_by(mask) if mask else 0, node.device_count if given is None else given)


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
        own = queued(allocation.scheduler)
        larger = f", or for a larger allocation ({own.interactive} …)" if own else ""
        message = (
            f"is {spec.nodes}, but {allocation} has no more: ask for {count} at the most "
            f"(--nodes {count}){larger}"
        )
        raise InvalidInput([Problem(source.where(("nodes",)), "nodes", message)])
    return spec.nodes
