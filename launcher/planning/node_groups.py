"""The number of ranks on a node, and the request for the nodes of each group. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from castoff.launcher.config.chunks import NodeGroup
from castoff.launcher.config.defaults import fixed_ranks
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.site import Site
from castoff.launcher.planning import limits
from castoff.launcher.text.words import counted


def default_ranks(spec: JobSpec, site: Site, shared: limits.Target | None) -> tuple[int, str]:
    """Return the number of ranks on each node of a job that does not set it, and why. `shared`: the queue
    whose jobs share nodes.
    """
    total = site.node.device_count if site.node else 0
    if fixed := fixed_ranks(spec.options, site):
        return fixed[1], f"{fixed[1]} ranks per node: what {fixed[0]} is made for"
    if not total or spec.devices_per_rank == 0:
        return 1, "1 rank per node: set ranks_per_node or ranks for more"
    why = f"the node has {total} devices"
    if shared and shared.max_devices < total:
        total = shared.max_devices
        why = f"{shared.name} gives a job {total} of a node's devices"
    each = max(total // (spec.devices_per_rank or 1), 1)
    return each, f"{each} ranks per node: {why}"


def nodes_for_devices(spec: JobSpec, site: Site) -> int | None:
    """Return how many nodes have a device for each of the job's `ranks`, if one node has too few; None: one
    is enough, or no number is.
    """
    node, ranks = site.node, spec.ranks
    per_rank = 1 if spec.devices_per_rank is None else spec.devices_per_rank
    if node is None or ranks is None or spec.launcher.driver or not 0 < per_rank <= node.device_count:
        return None
    total = node.device_count
    may_share = per_rank == 1 and ranks % total == 0 and ranks // total <= node.ranks_per_device
    return None if ranks * per_rank <= total or may_share else -(-ranks // (total // per_rank))


def with_nodes(spec: JobSpec, site: Site) -> tuple[JobSpec, list[str]]:
    """Return the job with as many nodes as the devices of its `ranks` need, if it leaves these open, and a
    note about it.
    """
    nodes = nodes_for_devices(spec, site) if spec.nodes is None else None
    if nodes is None or site.node is None:
        return spec, []
    each = f"and a node has {counted(site.node.device_count, 'device')}"
    return replace(spec, nodes=nodes), [f"{nodes} nodes: {spec.ranks} ranks use devices, {each}"]


def together(spec: JobSpec, groups: list[NodeGroup]) -> JobSpec:
    """Return the job with the values that all of its groups of nodes share: the total number of nodes, and
    each rank's cores.
    """
    if not groups:
        return spec
    cores = spec.cores_per_rank
    if any(group.cores_per_rank for group in groups):
        cores = min(group.cores_per_rank or cores or 1 for group in groups)
    nodes = sum(group.nodes for group in groups)
    return replace(spec, nodes=nodes, cores_per_rank=cores)


def decided(
    groups: Sequence[NodeGroup],
    *,
    cores: int | None,
    memory: str | None,
    per_rank: int,
    whole: int,
    most: int,
) -> list[NodeGroup]:
    """Return the groups with all values that they request; a value that a group leaves out is the job's.

    `per_rank`: devices of each rank; `whole`: devices of a node if the job has whole nodes, else 0; `most`:
    devices of a node, 0 if the number is not known.
    """
    found = []
    for group in groups:
        devices = (group.ranks_per_node or 1) * per_rank
        if devices and most:
            devices = whole or min(devices, most)
        found.append(
            replace(
                group,
                cores_per_rank=group.cores_per_rank or cores,
                devices_per_node=devices if group.devices_per_node is None else group.devices_per_node,
                memory=group.memory or memory,
            )
        )
    return found


def problems(groups: Sequence[NodeGroup], per_rank: int) -> Iterator[tuple[str, str]]:
    """Report a group that requests its own number of devices, since castoff gives every rank of the job the
    same number.
    """
    for number, group in enumerate(groups):
        if group.devices_per_node is not None and per_rank:
            given = f"castoff gives every rank {per_rank}, whatever its node has"
            fix = "use `devices_per_rank: 0`, and the program chooses among its node's; or drop it"
            yield f"select.{number}.devices_per_node", f"is {group.devices_per_node}, but {given}: {fix}"
