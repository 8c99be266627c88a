"""Requests PBS's nodes in the form that a site uses: chunks, nodes or totals. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from castoff.launcher.config import chunks
from castoff.launcher.config.chunks import NodeGroup, Resource
from castoff.launcher.config.directives import of_scheduler
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.quantities import cpus, size
from castoff.launcher.config.site import Site
from castoff.launcher.launchers.base import Request
from castoff.launcher.schedulers.dialect import Layer
from castoff.launcher.schedulers.pbs import NAME
from castoff.launcher.schedulers.pbs.select import Chunk, quoted, select_text

_FIELDS = {
    "ncpus": "cores_per_rank",
    "mpiprocs": "ranks_per_node",
    "ngpus": "devices_per_rank",
    "mem": "memory",
    "ppn": "ranks_per_node",
    "gpus": "devices_per_rank",
    "walltime": "walltime",
}
"""Resources that a field of the job covers, by the resource's name in lower case."""

_OF_JOBS = ("place", "filesystems", "cput")
"""Resources of a whole job, which a chunk cannot have."""


def of(spec: JobSpec, site: Site, request: Request) -> Layer:
    """Return the resources that the job requests by -l."""
    groups = _groups(spec, request)
    if request.device_queue:
        device = {name: _text(value) for name, value in groups[0].resources.items()}
        return [("select", select_text([Chunk(request.node_devices, device)]))]
    if site.request_form == "select":
        return [("select", select_text(_chunk(group, site, request) for group in groups))]
    if site.request_form == "nodes":
        return [("nodes", _nodes(groups, site, request)), ("mem", _memory(groups, site))]
    total = sum(group.nodes * _cpus(group) for group in groups)
    if request.layout.nodes > 1:
        total = (request.layout.nodes + request.spare_nodes) * _cores_of_node(site)
    devices = sum(group.nodes * (group.devices_per_node or 0) for group in groups)
    resources = {
        "ncpus": str(total),
        "ngpus": str(devices) if devices else None,
        "mem": _memory(groups, site),
    }
    return [(name, value) for name, value in resources.items() if name in site.requested_resources]


def problems(spec: JobSpec, site: Site, request: Request) -> Iterator[tuple[str, str]]:
    """Yield a job's requests that this site's PBS cannot be asked for, as fields and messages."""
    form = f"{site.name} asks PBS by -l {'nodes' if site.request_form == 'nodes' else 'ncpus'}"
    of_job, of_site = (of_scheduler(source.directives, NAME) for source in (spec, site))
    if request.device_queue:
        place = of_job.get("place", of_site.get("place"))
        yield from _of_device_queue(spec, site, request, request.device_queue, place)
    else:
        yield from _of_memory(spec, site, request)
    yield from _of_device_type(spec, site, request)
    if site.request_form == "select":
        for name in filter(of_job.get, chunks.resources(site.defaults.select)):
            fix = f"use `select: {{{name}: {of_job[name]}}}`"
            yield (
                f"directives.{name}",
                f"is a resource of chunks there, and qsub takes it in them alone: {fix}",
            )
    else:
        if spec.exclusive:
            yield "exclusive", f"is true, but {form}, which cannot ask for it: ask for all cores of a node"
        if place := of_job.get("place", of_site.get("place")):
            fix = "write place: null in directives"
            yield "directives.place", f"is {place}, but {form}, with which qsub takes no place: {fix}"
    if spec.select and site.request_form in ("ncpus", "totals"):
        resources = {} if isinstance(spec.select, list) else chunks.resources(spec.select)
        example = ", ".join(f"{name}: {_text(value)}" for name, value in resources.items()) or "NAME: VALUE"
        yield (
            "select",
            f"is set, but {form}, not in chunks: use `directives: {{{example}}}`, for the whole job",
        )
    else:
        yield from _of_resources(spec, site)
    if request.layout.nodes + request.spare_nodes > 1 and site.request_form in ("ncpus", "totals"):
        yield from _of_several_nodes(site, request, form)


def _of_memory(spec: JobSpec, site: Site, request: Request) -> Iterator[tuple[str, str]]:
    for field, memory in _memories(spec):
        if memory is not None and "mem" not in site.requested_resources and not request.whole_nodes:
            fix = "drop it, or add mem to `requested_resources` in a profile that extends this site"
            yield field, f"is {memory}, but {site.name} asks PBS for no memory: {fix}"


def _of_device_queue(
    spec: JobSpec, site: Site, request: Request, name: str, place: Resource | None
) -> Iterator[tuple[str, str]]:
    """Yield a job's impossible requests if each chunk is one device with its share of a node."""
    queue, node = site.queues[name], site.node
    gives = f"{name} gives a job devices of one node, which others share {queue.cited}"
    if spec.exclusive:
        yield "exclusive", f"is true, but {gives}: drop it, or use another queue"
    if isinstance(place, str) and "scatter" in place:
        yield "directives.place", f"is {place}, which asks for a node for each device, but {gives}: drop it"
    if isinstance(spec.select, list):
        yield "select", f"is a list, but {gives}, in chunks that are alike: write a mapping"
    if spec.memory is None or node is None or not request.node_devices:
        return
    share = size(node.memory) * request.node_devices // node.device_count if node.memory else 0
    if size(spec.memory) > share:
        part = f"{request.node_devices} of a node's {node.device_count} devices"
        advice = f"{part} come with {share >> 30}G {node.cited}: lower it, or use more devices"
        unknown = f"{site.name} does not say how much memory comes with {part}: drop it"
        yield "memory", f"is {spec.memory}, but {advice if share else unknown}"


def _of_device_type(spec: JobSpec, site: Site, request: Request) -> Iterator[tuple[str, str]]:
    """Yield a problem if this site's PBS cannot be asked for the device type, or if `select` also
    names one.
    """
    device_type, name = request.device_type, site.device_type_resource
    if device_type is None or not request.any_devices:
        return
    if site.request_form in ("ncpus", "totals"):
        form = f"is {device_type}, but {site.name} asks PBS by -l ncpus, not in chunks"
        example = f"directives: {{{name or 'NAME'}: {device_type}}}"
        yield "device_type", f"{form}: use `{example}`, for the whole job"
    elif name is None and site.request_form == "select":
        unknown = f"is {device_type}, but {site.name} does not say by which resource PBS is asked for it"
        fix = f"use `select: {{NAME: {device_type}}}`, or write `device_type_resource: NAME` in its profile"
        yield "device_type", f"{unknown} (pbsnodes -a shows it): {fix}"
    several = isinstance(spec.select, list)
    for number, group in enumerate(
        chunks.node_groups(spec.select) or [NodeGroup(resources=chunks.resources(spec.select))]
    ):
        for resource in [
            resource for resource in group.resources if name and resource.lower() == name.lower()
        ]:
            place = f"select.{number}.{resource}" if several else f"select.{resource}"
            yield (
                place,
                f"names the device type, and so does device_type ({device_type}): drop one of the two",
            )


def _of_several_nodes(site: Site, request: Request, form: str) -> Iterator[tuple[str, str]]:
    nodes = request.layout.nodes + request.spare_nodes
    if site.request_form == "ncpus":
        yield "nodes", f"is {nodes}, but {form}, which gives a job one node: use `nodes: 1`"
    elif not _cores_of_node(site):
        fix = "write node.sockets in its profile"
        yield "nodes", f"is {nodes}, but {form} for whole nodes, whose cores its profile does not have: {fix}"


def _of_resources(spec: JobSpec, site: Site) -> Iterator[tuple[str, str]]:
    """Check the resources in `select`."""
    several = isinstance(spec.select, list)
    alike = [NodeGroup(resources=chunks.resources(spec.select))]
    for number, group in enumerate(chunks.node_groups(spec.select) or alike):
        seen: dict[str, str] = {}
        for name, value in group.resources.items():
            before = seen.setdefault(name.lower(), name)
            message = _wrong(name, value, site, several)
            if message is None and before != name:
                message = f"says the same as {before}, since PBS ignores case: drop one of the two"
            if message is not None:
                yield f"select.{number}.{name}" if several else f"select.{name}", message


def _wrong(name: str, value: Resource, site: Site, several: bool) -> str | None:
    text, lower = _text(value), name.lower()
    if field := _FIELDS.get(lower):
        if several and field == "devices_per_rank":
            field = "devices_per_node"
        where = "each rank's part" if field.endswith("_per_rank") else "it"
        return f"is {text}, but castoff has a field for that: write {where} as {field}"
    if lower in _OF_JOBS:
        return f"is a resource of the whole job, not of a chunk; use `directives: {{{name}: {text}}}`"
    if several and lower == "ompthreads":
        return f"is {text}, but all ranks have one OMP_NUM_THREADS: write it in env"
    if site.request_form == "nodes" and value is False:
        return f"is false, but {site.name} asks PBS by -l nodes, for features that nodes have: drop it"
    try:
        quoted(text)
    except ValueError as error:
        return str(error)
    return None


def _memories(spec: JobSpec) -> Iterator[tuple[str, str | None]]:
    yield "memory", spec.memory
    for number, group in enumerate(chunks.node_groups(spec.select)):
        yield f"select.{number}.memory", group.memory


def _groups(spec: JobSpec, request: Request) -> Sequence[NodeGroup]:
    """Return the job's groups of nodes; all of its nodes as one group if it has no groups."""
    layout, resources = request.layout, chunks.resources(spec.select)
    nodes = layout.nodes + request.spare_nodes
    alike = NodeGroup(nodes, layout.max_per_node, request.cores, request.node_devices, spec.memory, resources)
    return request.node_groups or [alike]


def _cpus(group: NodeGroup) -> int:
    return (group.ranks_per_node or 1) * (group.cores_per_rank or 1)


def _chunk(group: NodeGroup, site: Site, request: Request) -> Chunk:
    spelled: dict[str, str | None] = {
        "ncpus": str(_cpus(group)),
        # Under torchrun, one process starts on each node.
        "mpiprocs": str(min(group.ranks_per_node or 1, request.layout.max_per_node)),
        "ngpus": str(group.devices_per_node) if group.devices_per_node else None,
        "mem": f"{group.memory.lower()}b" if group.memory else None,
    }
    resources: dict[str, str] = {}
    for name in site.requested_resources:
        if (text := spelled[name]) is not None:
            resources[name] = text
    resources |= _device_type(group, site, request)
    return Chunk(
        group.nodes, {**resources, **{name: _text(value) for name, value in group.resources.items()}}
    )


def _device_type(group: NodeGroup, site: Site, request: Request) -> dict[str, str]:
    if request.device_type and group.devices_per_node and site.device_type_resource:
        return {site.device_type_resource: request.device_type}
    return {}


def _nodes(groups: Sequence[NodeGroup], site: Site, request: Request) -> str:
    """Write -l nodes in the syntax of Torque and old PBS, in which features of nodes are plain names."""
    return "+".join(":".join([str(group.nodes), *_share(group, site, request)]) for group in groups)


def _share(group: NodeGroup, site: Site, request: Request) -> Iterator[str]:
    if {"ncpus", "mpiprocs"} & {*site.requested_resources}:
        yield f"ppn={_cpus(group)}"
    if group.devices_per_node and "ngpus" in site.requested_resources:
        yield f"gpus={group.devices_per_node}"
    typed = _device_type(group, site, request)
    yield from (f"{name}={value}" for name, value in typed.items())
    if request.device_type and group.devices_per_node and not typed:
        yield request.device_type
    for name, value in group.resources.items():
        yield name if value is True else f"{name}={quoted(_text(value))}"


def _memory(groups: Sequence[NodeGroup], site: Site) -> str | None:
    """Return the memory of all nodes together, in the smallest unit that their values use."""
    if "mem" not in site.requested_resources or not any(group.memory for group in groups):
        return None
    unit = min((group.memory[-1] for group in groups if group.memory), key="KMGT".index)
    total = sum(group.nodes * _in_units(group.memory, unit) for group in groups if group.memory)
    return f"{total}{unit.lower()}b"


def _in_units(memory: str, unit: str) -> int:
    return int(memory[:-1]) << 10 * ("KMGT".index(memory[-1]) - "KMGT".index(unit))


def _cores_of_node(site: Site) -> int:
    return sum(len(cpus(socket)) for socket in site.node.sockets) if site.node else 0


def _text(value: Resource) -> str:
    return value if isinstance(value, str) else str(value).lower()
