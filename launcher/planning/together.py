"""Members of an array that share jobs: how many in each, and on how many nodes. Pure.

The job's nodes are planned as those of one large member whose ranks are all members' ranks: so the site's
limits, the cores and the devices are checked for the whole job. `member` then makes the plan of one member.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_fields import Array, LauncherName, SharedNodes
from castoff.launcher.config.quantities import size
from castoff.launcher.config.site import Site
from castoff.launcher.config.site_fields import Node
from castoff.launcher.errors import Problem
from castoff.launcher.launchers.base import Layout, Request, without
from castoff.launcher.launchers.commands import LAUNCHERS
from castoff.launcher.planning import binding, devices
from castoff.launcher.planning.findings import Findings
from castoff.launcher.runs.plan import Devices, Plan
from castoff.launcher.runs.records import PER_RANK_FILES, Sharing
from castoff.launcher.text.words import counted
from castoff.launcher.typed.suggestion import setting


def sharing(
    spec: JobSpec,
    site: Site,
    layout: Layout,
    per_rank: int,
    launchers: tuple[LauncherName, LauncherName],
    found: Findings,
) -> Sharing | None:
    """Return how the members share jobs; None after a problem, which is reported.

    `layout`: a member's ranks. `per_rank`: the devices of each rank. `launchers`: the job's, and the one that
    is usual with its scheduler.
    """
    launcher, usual = launchers
    array = spec.array
    if array is None or (asked := array.shared) is None:
        return None
    for field, message in _excluded(spec):
        found.report(field, message)
    if LAUNCHERS[launcher].binds(spec.launcher.args):
        found.report("launcher.args", "bind ranks, which castoff does where members share nodes: drop that")
    if LAUNCHERS[launcher].is_mpiexec and not LAUNCHERS[usual].is_mpiexec:
        found.report(
            "launcher.name", f"is {launcher}, but members that share a job start by {usual}: drop it"
        )
    if found.problems:
        return None
    if asked.nodes is not None and asked.nodes < layout.nodes:
        few = f"gives {counted(asked.nodes, 'node')}, but one member needs {layout.nodes}"
        found.report("array.together", f"{few}: write nodes: {layout.nodes} or more")
        return None
    if array.together == "node" and layout.nodes > 1:
        fix = f"{setting('array.together', '16')} runs 16 members side by side"
        found.report("array.together", f"is node, but a member needs {layout.nodes} nodes: {fix}")
        return None
    per_node = _per_node(spec, site, layout, per_rank, found)
    if per_node is None:
        return None
    members = array.size
    if array.together == "node":
        members = min(per_node, members)
    elif asked.members is not None:
        members = min(asked.members, members)
    at_once = min(members, array.max_concurrent or members)
    if asked.members is None:
        groups = (asked.nodes or layout.nodes) // layout.nodes
        at_once = min(at_once, groups * per_node)
    groups = -(-at_once // per_node)
    return Sharing(
        members=members, at_once=at_once, per_node=-(-at_once // groups), nodes=groups * layout.nodes
    )


def _excluded(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Yield the fields that a member without a job of its own cannot have."""
    launcher = spec.launcher
    values: dict[str, object] = {
        "script": spec.script is not None,
        "launcher.driver": launcher.driver and spec.script is None,
        "launcher.torchrun": launcher.torchrun,
        "launcher.preload": launcher.preload is not None,
        "stage": spec.stage,
        "preflight": spec.preflight,
        "restart.spare_nodes": spec.restart.spare_nodes,
        "binding": spec.binding,
        "select": isinstance(spec.select, list) and spec.select,
        "requeue.how": spec.requeue.how == "chain",
    }
    for field, value in values.items():
        if value:
            yield field, "needs a job of its own, and array.together shares one: drop one of the two"


def _per_node(spec: JobSpec, site: Site, layout: Layout, per_rank: int, found: Findings) -> int | None:
    """Return how many members a node runs at the same time; None after a problem."""
    asked, node = spec.array.shared if spec.array else None, site.node
    given = asked.per_node if asked else None
    if layout.nodes > 1:
        if given is not None and given > 1:
            problem = f"is {given}, but a member needs {layout.nodes} nodes: drop it"
            found.report("array.together.per_node", problem)
            return None
        return 1
    if given is not None:
        return given
    ranks = layout.processes
    by_devices = per_rank and node and node.device_count // (ranks * per_rank)
    if node is None or not (node.sockets or by_devices):
        each = "each member has a node, as the site lists no cores"
        found.notes.append(f"together: {each}; array.together.per_node packs them")
        return 1
    if by_devices:
        most = by_devices
    elif spec.cores_per_rank is None:
        needed = "is missing: it decides how many members share a node"
        found.report("cores_per_rank", f"{needed}; write, say, {setting('cores_per_rank', '4')}")
        return None
    else:
        most = max(len(node.cores) // (ranks * spec.cores_per_rank), 1)
    if spec.memory and node.memory:
        most = min(most, max(size(node.memory) // size(spec.memory), 1))
    while most > 1 and not _fits(node, most * ranks, spec.cores_per_rank, per_rank):
        most -= 1
    return most or 1


def _fits(node: Node, ranks: int, cores: int | None, per_rank: int) -> bool:
    """Whether so many ranks have a node's cores and devices for themselves."""
    try:
        binding.cores(node, ranks, cores)
        return not (per_rank and node.device_count) or bool(devices.in_order(node, ranks, per_rank))
    except ValueError:
        return False


def of_job(spec: JobSpec, share: Sharing, layout: Layout, per_rank: int) -> JobSpec:
    """Return the job that the members share, as one large member without its program's limits."""
    array = spec.array or Array()
    jobs, most = share.jobs(array.size), array.max_concurrent
    at_once = most and most < array.size and max(most // share.members, 1)
    memory = f"{int(spec.memory[:-1]) * share.per_node}{spec.memory[-1]}" if spec.memory else None
    return msgspec.structs.replace(
        spec,
        array=Array(count=jobs, max_concurrent=at_once or None) if jobs > 1 else None,
        nodes=share.nodes,
        ranks=None,
        ranks_per_node=layout.max_per_node * share.per_node,
        devices_per_rank=per_rank,
        memory=memory,
    )


def too_large(problems: list[Problem], spec: JobSpec, share: Sharing, job: JobSpec) -> Iterator[str]:
    """Yield what is wrong with `array.together`, from the problems of the job that the members share.

    These name the job's size, which the user has not set.
    """
    array, ranks = spec.array or Array(), job.ranks_per_node or 1
    size = f"{counted(share.nodes, 'node')} with {counted(ranks, 'rank')}{' on each' * (share.nodes > 1)}"
    jobs = f"makes {'a job' if share.jobs(array.size) == 1 else 'jobs'} of {size}"
    if isinstance(array.together, SharedNodes):
        fix = f"lower its {'members' if array.together.members else 'nodes'} or per_node"
    else:
        fix = "lower it" if isinstance(array.together, int) else "write, say, {nodes: 1, per_node: 1}"
    for problem in problems:
        yield f"{jobs}: {fix} (the job's {problem.path} {problem.message})"


def of_member(
    job: Plan, processes: Request, spec: JobSpec, site_args: list[str], share: Sharing, layout: Layout
) -> Plan:
    """Return the plan of a member that shares a job.

    `job`: the job's plan, as `of_job` describes it. `processes`: the job's ranks.
    """
    launcher, array, site = LAUNCHERS[job.launcher], spec.array or Array(), processes.site
    asked = msgspec.structs.replace(processes, layout=layout)
    start, cpu_lists, bound, given = (
        launcher.share(asked, nodes_too=False),
        job.cpu_lists,
        job.bound,
        job.devices,
    )
    if share.per_node > 1:
        asked = msgspec.structs.replace(asked, cpu_lists=[], by_list=False)
        bound, given, site_args = (
            True,
            _devices(job, site, layout.max_per_node),
            without(launcher.bind_flags, site_args),
        )
        if launcher.divides:
            cpu_lists, asked = [], msgspec.structs.replace(asked, cores=processes.cores or 1)
        else:
            asked = msgspec.structs.replace(asked, cores=None, devices=0)
            start = launcher.share(asked, nodes_too=True)
            cpu_lists = job.cpu_lists if processes.whole_nodes else []
    return msgspec.structs.replace(
        job,
        nodes=layout.nodes,
        held_nodes=layout.nodes,
        ranks=layout.processes,
        layout=layout.groups,
        start=[*launcher.start(asked, site_args, spec.launcher.args), *start],
        cpu_lists=cpu_lists,
        bound=bound,
        devices=given,
        devices_per_node=layout.max_per_node * job.devices_per_rank,
        cores_per_node=None,
        array_count=array.size,
        array_indices=array.own_indices,
        array_max_concurrent=array.max_concurrent,
        per_rank_logs=layout.processes <= PER_RANK_FILES,
        sharing=share,
        notes=[*job.notes, *_notes(share, array, layout)],
    )


def _devices(job: Plan, site: Site, ranks: int) -> Devices:
    """Return which devices the local ranks of a node use, all members' ranks together.

    The ranks of a member, so many on a node, see the same as they would in a job of their own.
    """
    per_rank, given = job.devices_per_rank, job.devices
    if not per_rank:
        return Devices()
    if LAUNCHERS[job.launcher].divides:  # the launcher shows a member its own devices alone
        return Devices(step=0 if site.gpu_request == "gpus-per-task" else per_rank)
    if given.per_rank:
        return Devices(per_rank=given.per_rank, step=0)
    if not given.visible:  # each member takes its share of those that the job has on its host
        return Devices(step=per_rank)
    count, numbers, of_member = job.layout[0][0], given.visible.split(","), ranks * per_rank
    firsts = [rank // ranks * of_member for rank in range(count)]
    return Devices(per_rank=[",".join(numbers[one : one + of_member]) for one in firsts], step=per_rank)


def _notes(share: Sharing, array: Array, layout: Layout) -> Iterator[str]:
    nodes = f"{counted(share.jobs(array.size), 'job')} of {counted(share.nodes, 'node')}"
    beside = f", {share.per_node} on a node" if share.per_node > 1 else ""
    yield f"{array.size} members share {nodes}: {share.at_once} run side by side in each{beside}"
