"""`select:` of job files: what a chunk, PBS's share of one node, requests. Pure."""

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
    """Consecutive nodes for which a job requests the same."""

    nodes: int = 1
    ranks_per_node: int | None = None
    """Ranks on each of these nodes; None: as many as the job says."""
    cores_per_rank: int | None = None
    devices_per_node: int | None = None
    memory: str | None = None
    """Memory of each node."""
    resources: Mapping[str, Resource] = {}
    """The scheduler's own resources, in the given order."""


def node_groups(select: Select) -> list[NodeGroup]:
    """The groups of a list without problems; empty for a mapping, which adds to every chunk."""
    return [_node_group(one) for one in select] if isinstance(select, list) else []


def resources(select: Select) -> dict[str, Resource]:
    """The resources that a mapping adds to every chunk."""
    return {} if isinstance(select, list) else _named(select)


def threads(select: Select) -> str | None:
    """OMP_NUM_THREADS of every rank, if the chunks set it by PBS's own word."""
    given = next((one for name, one in resources(select).items() if name.lower() == "ompthreads"), None)
    return given if isinstance(given, str) else None


def merged(default: Select, given: Select) -> Select:
    """A job's `select` merged over its site's, which is a mapping; null removes a resource of the site."""
    of_site = {} if isinstance(default, list) else default
    if isinstance(given, list) and given:
        return [{**_named({**of_site, **one})} for one in given]
    return {**_named({**of_site, **({} if isinstance(given, list) else given)})}


def problems(select: Select) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """What is wrong with it on every site, each problem with its path in the job."""
    if not isinstance(select, list):
        for name in select:
            if name in _OWN:
                of_job = "devices_per_rank" if name == "devices_per_node" else name
                fix = f"write {of_job} beside select, not in it"
                yield ("select", name), f"is a field of castoff's, not a resource: {fix}"
        return
    for number, one in enumerate(select):
        for name, value in one.items():
            if name in _OWN and value is not None and _converted(name, value) is None:
                from castoff.launcher.typed.structure import allowed  # late: only a mistake needs it

                yield ("select", number, name), f"is {value!r}, but takes {allowed(_OWN[name])}"


def _node_group(given: Resources) -> NodeGroup:
    own = {name: _converted(name, given[name]) for name in _OWN if given.get(name) is not None}
    return NodeGroup(**own, resources=_named({name: one for name, one in given.items() if name not in _OWN}))


def _converted(name: str, value: object) -> Any:
    """A value that was read as text, converted to its field's type; None: it cannot be."""
    try:
        return msgspec.convert(value, _OWN[name], strict=_OWN[name] is Memory)
    except msgspec.ValidationError:
        return None


def _named(given: Resources) -> dict[str, Resource]:
    return {name: value for name, value in given.items() if value is not None}
