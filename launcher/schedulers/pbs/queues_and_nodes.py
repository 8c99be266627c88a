"""Reads what PBS reports about its queues, server and nodes.

The format of the answers is in OpenPBS's source, display_statque() and display_statserver() in
src/cmds/qstat.c and src/cmds/pbsnodes.c, and in pbs_queue_attributes(7B).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from castoff.launcher.schedulers.machine_info import (
    AwayHost,
    Machine,
    MachineInfo,
    NodeKind,
    Question,
    QueueInfo,
    kinds,
    outermost,
)
from castoff.launcher.schedulers.pbs.jobs import blocks

QUESTIONS = [
    Question("queues", ["qstat", "-Q", "-f"]),
    Question("server", ["qstat", "-B", "-f"]),
    Question("nodes", ["pbsnodes", "-a"], optional=True),
]

_SOURCES = {
    "queues": "qstat -Qf",
    "nodes": "pbsnodes -a",
    "array": "qstat -Bf, max_array_size",
    "directive_values": "qstat -Bf, valid_filesystems",
}

_LIMIT = re.compile(r"\[[up]:PBS_GENERIC=(\d+)\]")
"""Matches a limit for each user (u) or for each project (p) in attributes such as max_queued."""

_RESERVATION = re.compile(r"[RMS][0-9]+")
"""Matches the name of a reservation's queue."""

_HERE = "resources_available."

_TYPES = tuple(
    f"{_HERE}{name}" for name in ("accelerator_model", "gpu_type", "gputype", "gpu_model", "gpu_name")
)
"""Resources in which sites name a node's type of GPU; PBS itself defines only the first."""

_AWAY = {"down", "offline", "state-unknown", "stale", "maintenance", "unresolvable"}
"""States in which nodes get no jobs; a node's states are separated by commas (pbs_node_attributes(7B))."""

_ACCESS = {"acl_users": "users", "acl_groups": "Unix groups", "acl_hosts": "submitting hosts"}


def parse(answers: Mapping[str, str]) -> MachineInfo:
    """Parse the answers; see `Machine.parse`."""
    entries = {name: dict(blocks(iter([answer]))) for name, answer in answers.items()}
    ((name, server),) = entries["server"].items()
    members = server.get("max_array_size")
    return MachineInfo(
        queues={
            queue: _queue(attributes, entries["queues"])._replace(passing=bool(_RESERVATION.fullmatch(queue)))
            for queue, attributes in entries["queues"].items()
        },
        default_queue=server.get("default_queue"),
        array_count=None if members is None else int(members),
        nodes=kinds(_nodes(entries.get("nodes", {}), entries["queues"])),
        away=tuple(_away(entries.get("nodes", {}), entries["queues"])),
        counts_threads=True,
        name=name,
        version=server.get("pbs_version"),
        sources=_SOURCES,
        fields=_fields(server, entries.get("nodes", {})),
        questions=tuple(_questions(server)),
    )


def _nodes(
    nodes: Mapping[str, Mapping[str, str]], queues: Mapping[str, Mapping[str, str]]
) -> Iterator[NodeKind]:
    for attributes in nodes.values():
        if f"{_HERE}ncpus" not in attributes:
            continue
        yield NodeKind(
            cores=int(attributes[f"{_HERE}ncpus"]),
            devices=int(attributes.get(f"{_HERE}ngpus", 0)),
            device_type=next((attributes[resource] for resource in _TYPES if resource in attributes), None),
            memory=_mebibytes(attributes.get(f"{_HERE}mem", "")),
            queues=tuple(_queues_of(attributes, queues)),
            whole=attributes.get("sharing", "")
            in ("default_excl", "default_exclhost", "force_excl", "force_exclhost"),
        )


def _away(
    nodes: Mapping[str, Mapping[str, str]], queues: Mapping[str, Mapping[str, str]]
) -> Iterator[AwayHost]:
    for name, attributes in nodes.items():
        state = attributes.get("state", "")
        if not _AWAY.isdisjoint(state.split(",")):
            yield AwayHost(name, state, attributes.get("comment", ""), tuple(_queues_of(attributes, queues)))


def _mebibytes(size: str) -> int | None:
    """Read a size, in MiB: pbs_mom reports kb, and administrators use any unit (pbs_resources(7B))."""
    match = re.fullmatch(r"(\d+)([kmgtp]?)b", size, re.IGNORECASE)
    return (int(match[1]) << 10 * " kmgtp".index(match[2].lower() or " ")) >> 20 or None if match else None


def _queues_of(attributes: Mapping[str, str], queues: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield the queues whose jobs a node takes; none if it takes jobs of all queues.

    The node's attribute `queue` ties it to one queue. Otherwise a queue's default chunk may demand a resource
    of the node, such as `Qlist` (PBS's guide for administrators, "Associating Vnodes with Multiple Queues").
    """
    if "queue" in attributes:
        yield attributes["queue"]
        return
    wanted = {name: dict(_demands(queue)) for name, queue in queues.items()}
    if not any(wanted.values()):
        return
    for name, queue in queues.items():
        if any(
            all(
                value in attributes.get(f"{_HERE}{resource}", "False").split(",")
                for resource, value in wanted[destination].items()
            )
            for destination in _routes(queue) or [name]
            if destination in wanted
        ):
            yield name


def _routes(queue: Mapping[str, str]) -> list[str]:
    """Return the queues to which a routing queue sends its jobs."""
    routes = queue.get("route_destinations")
    return [name.strip().partition("@")[0] for name in routes.split(",")] if routes else []


def _demands(queue: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the resources in a queue's default chunk that a node has or lacks, and that are not numbers."""
    for name, value in queue.items():
        if name.startswith("default_chunk.") and not re.match(r"[0-9]", value):
            yield name.removeprefix("default_chunk."), value


def _fields(server: Mapping[str, str], nodes: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Return the file systems that a job may name, if the server lists them, and the resource that names a
    node's type of GPU.
    """
    fields: dict[str, Any] = {}
    if listed := server.get(f"{_HERE}valid_filesystems"):
        among = [name.strip() for name in listed.split(",")]
        fields["directive_values"] = {"filesystems": {"among": among, "separator": ":"}}
    typed = (name for name in _TYPES if any(name in attributes for attributes in nodes.values()))
    if name := next(typed, None):
        fields["device_type_resource"] = name.removeprefix(_HERE)
    return fields


def _questions(server: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    if listed := server.get(f"{_HERE}valid_filesystems"):
        example = ":".join(listed.split(",")[:2])
        yield (
            "Does PBS refuse jobs that name no file systems? qstat -Bf lists some. If so",
            (
                "required:",
                "  - field: directives.filesystems",
                '    because: "what qsub says"',
                f"    example: 'directives: {{pbs: {{filesystems: \"{example}\"}}}}'",
                "    source: qsub",
                "    date: DATE",
            ),
        )
    if "default_queue" not in server:
        yield "Which queue do jobs take that name none? PBS has no default.", ("default_queue: NAME",)
    yield (
        "Which account are jobs charged to (qsub -A), and does PBS refuse those without one? It does not "
        "say.",
        ("defaults: {account: NAME}",),
    )
    yield (
        "Which mpiexec do jobs have? `mpiexec --version` in a job names it: hydra (MPICH), intelmpi, "
        "openmpi or "
        "pals (HPE).",
        ("launcher: hydra",),
    )


def _queue(attributes: Mapping[str, str], queues: Mapping[str, Mapping[str, str]]) -> QueueInfo:
    """Describe a queue; a routing queue has the limits of its destinations, within its own."""
    names = _routes(attributes)
    reached = [queues[name] for name in names if name in queues] if names else [attributes]

    def bound(outer: Callable[..., int], inner: Callable[..., int], name: str) -> int | None:
        least = "1" if name == "resources_min.nodect" else None
        limit_behind = outermost(outer, (_number(destination.get(name, least)) for destination in reached))
        own_limit = _number(attributes.get(name))
        return inner((limit for limit in (limit_behind, own_limit) if limit is not None), default=None)

    return QueueInfo(
        bound(min, max, "resources_min.nodect"),
        bound(max, min, "resources_max.nodect"),
        bound(min, max, "resources_min.walltime"),
        bound(max, min, "resources_max.walltime"),
        max_jobs=_jobs(attributes),
        offered=attributes.get("enabled") != "False" and attributes.get("from_route_only") != "True",
        accepts_jobs=attributes.get("enabled") != "False",
        starts_jobs=attributes.get("started") != "False",
        routes_to=tuple(names),
        notes=tuple(_notes(attributes)),
    )


def _notes(attributes: Mapping[str, str]) -> Iterator[str]:
    for name, whom in _ACCESS.items():
        # acl_users counts only if acl_user_enable is set.
        if attributes.get(f"{name[:-1]}_enable") == "True":
            yield f"for the {whom} {attributes.get(name, 'that it names').replace(',', ', ')} alone"
    if attributes.get("started") == "False":
        yield "it starts no jobs now"
    if usual := attributes.get("resources_default.walltime"):
        yield f"a job without a walltime gets {usual}"


def _jobs(attributes: Mapping[str, str]) -> int | None:
    """Return the limit of queued and running jobs: max_queued, or else the sum of the limits for queued and
    for running jobs.
    """
    both, running, waiting = (
        min(map(int, _LIMIT.findall(attributes.get(name, ""))), default=None)
        for name in ("max_queued", "max_run", "queued_jobs_threshold")
    )
    if both is None and running is not None and waiting is not None:
        return running + waiting
    return both


def _number(text: str | None) -> int | None:
    """Read a number, or `01:30:00` in seconds."""
    if text is None:
        return None
    # there may be any number of hours: 99999:00:00
    hours, minutes, rest = [0, 0, *map(int, text.split(":"))][-3:]
    return (hours * 60 + minutes) * 60 + rest


MACHINE = Machine(QUESTIONS, parse)
