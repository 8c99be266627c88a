"""Whether ranks that are bound by hand have their devices beside their cores. Pure.

castoff gives each local rank a device, in the order of the cores that it would bind ranks to. Who binds them
otherwise gets the same devices, and on some nodes each rank then reaches its own across the node.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from launcher.config.job import JobSpec
from launcher.config.job_fields import LauncherName
from launcher.config.quantities import cpulist, cpus
from launcher.config.site_fields import Node
from launcher.launchers.commands import LAUNCHERS
from launcher.planning import binding
from launcher.runs.plan import Devices
from launcher.typed.suggestion import setting


class ExplicitBinding(NamedTuple):
    """What binds the ranks of a node in the place of castoff."""

    field: str
    """Where it is said."""
    words: list[str]
    """The launcher's flags; for the job's `binding`, its lists."""


def explicit_binding(spec: JobSpec, launcher: LauncherName, site_args: list[str]) -> ExplicitBinding | None:
    """The job's own binding, else its flags, else the site's."""
    if spec.binding is not None:
        return ExplicitBinding("binding", binding.lists_of(spec))
    for field, words in (("launcher.args", spec.launcher.args), ("launcher_args", site_args)):
        if LAUNCHERS[launcher].binds(words):
            return ExplicitBinding(field, words)
    return None


def problems(
    node: Node, devices: Devices, ranks: int, launcher: LauncherName, explicit: ExplicitBinding
) -> Iterator[str]:
    """Why such a binding cannot be, read after the field's name.

    A rank that has one core beside a device of its own has it near enough: castoff itself gives the only
    rank of a node all cores. `devices`: those that castoff numbers for the ranks itself.
    """
    if not node.device_cores and len(node.sockets) < 2:
        return  # all cores are alike
    if explicit.field == "binding":
        text = ":".join(explicit.words)
        bound: list[set[int]] | None = [set(cpus(one)) for one in explicit.words]
    else:
        own = LAUNCHERS[launcher]
        text, bound = own.binding(explicit.words), own.bound(explicit.words, ranks)
    if bound is None:
        unknown = f"binds ranks by {text}, from which castoff cannot derive their cores"
        yield f"{unknown}; but it gives {_given(node, devices, 0)}: {_fix(node, ranks)}"
        return
    away = [
        rank
        for rank, cores in enumerate(bound[:ranks])
        if cores and not _cores_of(node, cores) & _near(node, devices, rank)
    ]
    if away:
        where = f"binds local rank {away[0]} to cores {cpulist(sorted(bound[away[0]]))} ({text})"
        so_are = f"; so it is for {len(away)} of {ranks} ranks" if len(away) > 1 else ""
        yield f"{where}, but castoff gives {_given(node, devices, away[0])}{so_are}: {_fix(node, ranks)}"


def _given(node: Node, devices: Devices, rank: int) -> str:
    """A local rank's devices, in words."""
    numbers = ",".join(map(str, _devices_of(devices, rank)))
    near = cpulist(sorted(_near(node, devices, rank)))
    return f"local rank {rank} device {numbers}, which is beside cores {near} {node.cited}"


def _fix(node: Node, ranks: int) -> str:
    own = ""
    with suppress(ValueError):  # so many that castoff could not bind them either
        own = f" ({':'.join(cpulist(cores) for cores in binding.cores(node, ranks, None))})"
    itself = f"drop it, and castoff binds each rank beside its device{own}"
    return f"{itself}; or use {setting('devices_per_rank', '0')}, and choose devices in the program"


def _devices_of(devices: Devices, rank: int) -> list[int]:
    """The numbers of a local rank's devices on its node."""
    if devices.per_rank:
        return [int(number) for number in devices.per_rank[rank].split(",")]
    place = rank * (devices.step or 0)
    return [place if devices.visible is None else int(devices.visible.split(",")[place])]


def _near(node: Node, devices: Devices, rank: int) -> set[int]:
    """The cores beside a local rank's devices."""
    own = [at for at, held in enumerate(node.devices) for _ in range(held)]  # the socket of each device
    lists = node.device_cores or [node.sockets[socket] for socket in own]
    return {core for device in _devices_of(devices, rank) for core in cpus(lists[device])}


def _cores_of(node: Node, numbers: set[int]) -> set[int]:
    """Cores, where some are named by their further hardware threads, which are numbered after all cores."""
    there = {core for socket in node.sockets for core in cpus(socket)}
    return {number if number in there else number % len(there) for number in numbers}
