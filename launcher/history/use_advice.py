"""A sentence of advice on what a job could ask for instead, where its use makes that plain. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable

from castoff.launcher.history.use import Use
from castoff.launcher.runs.records import Facts
from castoff.launcher.text.words import counted, size_words

_SOON = 120.0
"""Seconds before which a job is still starting, so that there is no advice."""

_IDLE = 0.01
"""The fraction of the time up to which a GPU counts as not used."""

_WAITS = 0.25
_LITTLE_COMPUTED = 0.5
_LITTLE_HELD = 0.25
_LITTLE_ASKED = 0.5
_FULL = 0.95
"""Fractions above which a program waits for data, and below which a GPU computes little, its memory is
hardly used, and cores or memory were asked for in vain; and above which they are used up.
"""

_ROOM = 1.25
"""How much more than was used the advice asks for."""

_WHOLE = 0.9
"""The fraction of a node from which on a job has nothing to give back to others."""

_SMALL = 4 << 30
"""The bytes of memory up to which less would help nobody."""

_GIB = 1 << 30


def advice(use: Use, planned: Facts, data_wait: float | None = None) -> str:
    """The most important advice on a job, with the fields to write; empty if nothing is plain.

    `data_wait`: the fraction of the time in which the program waits for data, if it reports that.
    """
    if use.seconds < _SOON:
        return ""
    found = (check(use, planned, data_wait) for check in _CHECKS)
    return next(filter(None, found), "")


def advice_to_members(use: Use, planned: Facts) -> str:
    """The most important advice that holds for every member of an array; `use`: what they all used."""
    if use.seconds < _SOON:
        return ""
    return next(filter(None, (check(use, planned, None) for check in _CHECKS_OF_MEMBERS)), "")


def _idle_everywhere(use: Use, planned: Facts, _: float | None) -> str:
    is_idle = all((device.use or 0.0) <= _IDLE for device in use.devices)
    return _idle_devices(use, planned, None) if is_idle else ""


def _idle_devices(use: Use, planned: Facts, _: float | None) -> str:
    devices = [device for device in use.devices if device.use is not None and planned.devices_per_rank]
    idle = sum((device.use or 0.0) <= _IDLE for device in devices)
    if not idle:
        return ""
    if idle == len(devices):
        which = "its GPU did not compute" if idle == 1 else f"none of its {len(devices)} GPUs computed"
        return f"{which}: devices_per_rank: 0 asks for none; if it needs one, check that the program finds it"
    computing = len(devices) - idle
    if len(use.nodes) > 1:
        hosts = len({device.host for device in devices if (device.use or 0.0) > _IDLE})
        if hosts * len(devices) == computing * len(use.nodes):  # whole nodes are idle
            of_nodes = f"{hosts} of {counted(len(use.nodes), 'node')}"
            return f"only GPUs of {of_nodes} computed: nodes: {hosts} asks for as many as it uses"
        return f"{computing} of its {len(devices)} GPUs computed: ask for as many as it uses"
    ranks = planned.layout[0][0] if planned.layout else 1
    per_rank = planned.devices_per_rank
    field = (
        f"devices_per_rank: {computing}" if ranks == 1 and per_rank > 1 else f"ranks_per_node: {computing}"
    )
    return f"{computing} of its {len(devices)} GPUs computed: {field} asks for as many as it uses"


def _full_memory(use: Use, _: Facts, __: float | None) -> str:
    node = max(use.nodes, key=lambda node: node.memory / (node.limit or math.inf))
    if not node.limit or node.memory < _FULL * node.limit:
        return ""
    return (
        f"it held {node.memory / node.limit:.0%} of its memory on {node.host}: "
        f"memory: {_gib(node.limit * _ROOM)}G is safer"
    )


def _data(use: Use, planned: Facts, data_wait: float | None) -> str:
    if data_wait is None or data_wait < _WAITS:
        return ""
    cpus, cpu = sum(node.cpus for node in use.nodes), sum(node.cpu for node in use.nodes)
    if cpus and cpu > _FULL * cpus and planned.cores_per_rank:
        more = f"its cores are busy: cores_per_rank: {2 * planned.cores_per_rank}"
    else:
        more = "more processes that load it (num_workers), or `stage` brings it to the node's disk"
    return f"it waits for data {data_wait:.0%} of the time: {more}"


def _slow_devices(use: Use, planned: Facts, _: float | None) -> str:
    if use.device_use is None or use.device_use >= _LITTLE_COMPUTED:
        return ""
    computing = f"GPUs compute {use.device_use:.0%} of the time"
    cpus, cpu = sum(node.cpus for node in use.nodes), sum(node.cpu for node in use.nodes)
    if cpus and cpu > _FULL * cpus and planned.cores_per_rank:
        return f"{computing}, and all cores are busy: cores_per_rank: {2 * planned.cores_per_rank}"
    parts = [device.memory / device.total for device in use.devices if device.memory and device.total]
    if parts and max(parts) < _LITTLE_HELD:
        return (
            f"{computing} and hold {max(parts):.0%} of their memory: larger batches, or fewer or smaller GPUs"
        )
    return ""


def _spare_memory(use: Use, _: Facts, __: float | None) -> str:
    node = max(use.nodes, key=lambda node: node.memory)
    limit = node.limit
    if not limit or not node.node_memory or limit > _WHOLE * node.node_memory or limit <= _SMALL:
        return ""
    if node.memory > _LITTLE_ASKED * limit:
        return ""
    return (
        f"it held {size_words(node.memory)} of the {size_words(limit)} it has: "
        f"memory: {_gib(node.memory * _ROOM)}G would do"
    )


def _spare_cores(use: Use, planned: Facts, _: float | None) -> str:
    node = max(use.nodes, key=lambda node: node.cpu)
    if not planned.cores_per_rank or planned.cores_per_rank < 2 or not node.cpus or not node.node_cpus:
        return ""
    if node.cpus > _WHOLE * node.node_cpus or node.cpu > _LITTLE_ASKED * node.cpus:
        return ""
    enough = max(math.ceil(planned.cores_per_rank * node.cpu / node.cpus * _ROOM), 1)
    if enough >= planned.cores_per_rank:
        return ""
    return f"it kept {node.cpu:.1f} of its {node.cpus} CPUs busy: cores_per_rank: {enough} would do"


def _gib(size: float) -> int:
    return max(math.ceil(size / _GIB), 1)


_CHECKS: tuple[Callable[[Use, Facts, float | None], str], ...] = (
    _idle_devices,
    _full_memory,
    _data,
    _slow_devices,
    _spare_memory,
    _spare_cores,
)
"""The most important first."""

_CHECKS_OF_MEMBERS = (_idle_everywhere, _full_memory, _slow_devices, _spare_memory, _spare_cores)
