"""The resources that a script requests for each node, and whether castoff would request the same. Pure
functions.
"""

from __future__ import annotations

from typing import Any

from castoff.launcher.launchers.foreign.asked import Asked


class Unproven(Exception):
    """A job whose ranks castoff starts might differ from the script's; the text is the reason."""


def of_each_node(job: Asked) -> dict[str, Any]:
    """The sizes of each node by the directives: for a job that keeps its script and may run under another
    scheduler.
    """
    fields: dict[str, Any] = {}
    if {"nodes", "ntasks", "select", "nslots"} & {*job.raw}:
        fields["nodes"] = job.nodes
    tasks = _tasks(job)
    cpus = job.node_cpus or tasks * (job.cpus_per_rank or 1)
    devices = _devices(job)
    if job.device_cpus and devices:
        cpus = max(cpus, job.device_cpus * devices)
    if cpus > 1:
        fields["cores_per_rank"] = cpus
    if devices:
        fields["devices_per_rank"] = devices
    return fields


def _tasks(job: Asked) -> int:
    """The largest number of tasks on a node, by the directives."""
    if job.ranks:
        return -(-job.ranks // (job.nodes or 1))
    return job.ranks_per_node or 1


def _devices(job: Asked) -> int | None:
    """The largest number of devices on a node, by the directives."""
    if job.node_devices:
        return job.node_devices
    if job.rank_devices:
        return job.rank_devices * _tasks(job)
    return -(-job.devices // (job.nodes or 1)) if job.devices else None


def of_ranks(
    job: Asked, line: Asked | None, torch: Asked | None, *, per_device: bool, by_tasks: bool
) -> dict[str, Any]:
    """The fields about sizes by which a job whose ranks castoff starts requests the same as the script.

    `job`: the directives. `line`: the launcher's options; None without a launcher. `torch`: torchrun's
    options. `per_device`: whether torchrun starts a rank on each device. `by_tasks`: whether the launcher
    starts the tasks of the directives if its options give no number.

    Raises:
        Unproven: the job would request something else than the script.
    """
    nodes, tasks, devices = job.nodes or 1, _tasks(job), _devices(job)
    if job.ranks and job.ranks % nodes:
        raise Unproven(f"{job.ranks} tasks are not the same number on each of {nodes} nodes")
    if job.devices and nodes > 1 and not (job.node_devices or job.rank_devices):
        raise Unproven("the directives leave the number of GPUs of each node to Slurm")
    outer = _of_each_node(line, nodes, tasks, by_tasks=by_tasks) if line else 1
    if line is None and nodes > 1:
        raise Unproven(f"the launch line uses 1 of {nodes} nodes")
    per_node = outer
    if torch is not None:
        if outer != 1:
            raise Unproven(f"{outer} torchruns start on each node")
        if (torch.nodes or 1) != nodes:
            raise Unproven(f"torchrun's ranks are on {torch.nodes or 1} of {nodes} nodes")
        per_node = devices if per_device and devices else torch.ranks_per_node or 0
        if not per_node:
            raise Unproven("the script does not say how many ranks torchrun starts on a node")
    elif nodes * per_node == 1:
        raise Unproven("the launch line starts one process, which may start workers of its own")
    fields = {"nodes": nodes, "ranks_per_node": per_node}
    return (
        fields
        | _cores(job, line or Asked(), outer, tasks, per_node)
        | _devices_per_rank(line, torch, devices, outer, per_node)
    )


def _of_each_node(line: Asked, nodes: int, tasks: int, *, by_tasks: bool) -> int:
    """The number of processes that the launcher starts on each node."""
    if line.nodes and line.nodes != nodes:
        raise Unproven(f"the launch line uses {line.nodes} of {nodes} nodes")
    if line.ranks is None:
        if not by_tasks:
            raise Unproven("the launch line does not say how many ranks it starts")
        return line.ranks_per_node or tasks
    if line.ranks < nodes:
        raise Unproven(f"the launch line uses {line.ranks} of {nodes} nodes")
    per_node, rest = divmod(line.ranks, nodes)
    if rest or line.ranks_per_node not in (None, per_node):
        raise Unproven(f"{line.ranks} ranks are not the same number on each of {nodes} nodes")
    if nodes > 1 and line.ranks_per_node is None and per_node != tasks:
        raise Unproven(f"the script does not say on which nodes {line.ranks} ranks start")
    return per_node


def _cores(job: Asked, line: Asked, outer: int, tasks: int, per_node: int) -> dict[str, Any]:
    """The cores of a rank, if the script requests a number of CPUs."""
    cpus = job.node_cpus or (job.cpus_per_rank * tasks if job.cpus_per_rank else None)
    whole = bool(job.fields.get("exclusive"))
    asked = line.cpus_per_rank * outer if line.cpus_per_rank else None
    if asked and not whole and asked != (cpus or tasks):
        raise Unproven(
            f"the launch line asks for {asked} CPUs of a node, and the directives for {cpus or tasks}"
        )
    if cpus is None and not whole and outer != tasks:
        raise Unproven(
            f"the launch line starts {outer} ranks on a node, and the directives ask for {tasks} CPUs"
        )
    cpus = asked or cpus
    if cpus is None:
        return {}
    if cpus % per_node:
        raise Unproven(f"{per_node} ranks share {cpus} CPUs of a node unequally")
    return {"cores_per_rank": cpus // per_node}


def _devices_per_rank(
    line: Asked | None, torch: Asked | None, devices: int | None, outer: int, per_node: int
) -> dict[str, Any]:
    asked = None
    if line is not None:
        asked = line.node_devices or (line.rank_devices * outer if line.rank_devices else None)
        if line.devices:
            raise Unproven("the launch line asks for GPUs of all nodes together")
    if asked and asked != devices:
        raise Unproven(
            f"the launch line asks for {asked} GPUs of a node, and the directives for {devices or 0}"
        )
    if not devices:
        return {"devices_per_rank": 0}
    if devices % per_node:
        raise Unproven(f"{per_node} ranks share {devices} GPUs of a node")
    if devices > per_node and torch is None:
        raise Unproven(
            f"each rank has {devices // per_node} GPUs, so its program may start workers of its own"
        )
    return {"devices_per_rank": devices // per_node}
