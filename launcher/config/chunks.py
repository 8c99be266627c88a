"""`select:` of job files: the resources of a chunk, which is PBS's share of one node. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from castoff.launcher.config.job_fields import Count, CountOrNone, Memory, Resources, Select

Resource: TypeAlias = "str | bool"

_OWN: dict[str, Any] = {
    "nodes": Count,
    "ranks_per_node": Count,
    "cores_per_rank": Count,
    "devices_per_node": CountOrNone,
    "memory": Memory,
}
"""Names in a group of nodes that castoff interprets; every other name is a resource of the scheduler."""


class NodeGroup(msgspec.Struct, frozen=True):
    """Consecutive nodes for which a job requests the same resources."""

    nodes: int = 1
    ranks_per_node: int | None = None
    """Ranks on each of these nodes; None: as in the job."""
    cores_per_rank: int | None = None
    devices_per_node: int | None = None
    memory: str | None = None
    """Memory of each node."""
    resources: Mapping[str, Resource] = {}
    """The scheduler's own resources, in the order of the job file."""


def node_groups(select: Select) -> list[NodeGroup]:
    """The groups of a valid list; empty for a mapping, whose resources every chunk gets."""
    return [_node_group(group) for group in select] if isinstance(select, list) else []


def resources(select: Select) -> dict[str, Resource]:
    """The resources that a mapping adds to every chunk."""
    return {} if isinstance(select, list) else _named(select)


def threads(select: Select) -> str | None:
    """The value of OMP_NUM_THREADS in every rank, if the job sets PBS's resource `ompthreads`."""
    values = [value for name, value in resources(select).items() if name.lower() == "ompthreads"]
    return values[0] if values and isinstance(values[0], str) else None


def merged(default: Select, given: Select) -> Select:
    """A job's `select` merged over its site's, which is a mapping; null removes a resource that the site
    adds.
    """
    of_site = {} if isinstance(default, list) else default
    if isinstance(given, list) and given:
        return [{**_named({**of_site, **group})} for group in given]
    return {**_named({**of_site, **({} if isinstance(given, list) else given)})}


def problems(select: Select) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The problems of a `select` that do not depend on the site, each with its path in the job."""
    if not isinstance(select, list):
        for name in select:
            if name in _OWN:
                of_job = "devices_per_rank" if name == "devices_per_node" else name
                fix = f"write {of_job} beside select, not in it"
                yield ("select", name), f"is a field of castoff, not a resource: {fix}"
        return
    for number, group in enumerate(select):
        for name, value in group.items():
            if name in _OWN and value is not None and _converted(name, value) is None:
                from castoff.launcher.typed.structure import allowed  # late: only a mistake needs it

                yield ("select", number, name), f"is {value!r}, but takes {allowed(_OWN[name])}"


def _node_group(group: Resources) -> NodeGroup:
    fields = {name: _converted(name, group[name]) for name in _OWN if group.get(name) is not None}
    others = {name: value for name, value in group.items() if name not in _OWN}
    return NodeGroup(**fields, resources=_named(others))


def _converted(name: str, value: object) -> Any:
    """Convert a text to the type of a field; None if that is impossible."""
    try:
        return msgspec.convert(value, _OWN[name], strict=_OWN[name] is Memory)
    except msgspec.ValidationError:
        return None


def _named(resources: Resources) -> dict[str, Resource]:
    return {name: value for name, value in resources.items() if value is not None}
