"""Which cores and which devices each local rank gets, from the node's topology alone.

Ranks fill the sockets in order, as evenly as possible, and each keeps to the cores and devices of
its socket, so that a rank never reaches its device across the socket link. Only a node's single
rank may use both sockets. Every rank gets as many cores as the one that has the fewest, because
ranks of unequal speed wait for the slowest at every step. Where the site knows which cores are near
to which device, a rank begins where its share of the socket does, beside its device. A job may name the
cores of each rank itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from launcher.config.job import JobSpec
from launcher.config.job_fields import LauncherName
from launcher.config.quantities import cpulist, cpus, descending
from launcher.config.site import Site
from launcher.config.site_fields import Node
from launcher.launchers.base import Layout
from launcher.launchers.commands import LAUNCHERS
from launcher.runs.plan import Devices


def ranks_of_sockets(ranks: int, sockets: int) -> list[int]:
    """How many of a node's ranks live on each socket: block by block, the first sockets first."""
    firsts = [-(-socket * ranks // sockets) for socket in range(sockets + 1)]
    return [after - first for first, after in pairwise(firsts)]


def cores(node: Node, ranks: int, per_rank: int | None) -> list[list[int]]:
    """The cores of each local rank; empty where the site does not know its nodes' cores.

    `per_rank` asks for that many; None gives each an equal share of its socket.

    Raises:
        ValueError: there are not enough cores; the text, read after "is N, but", says what fits.
    """
    usable = node.usable_cores()
    if not usable:
        return []
    if ranks == 1:
        every = [core for socket in usable for core in socket]
        if per_rank is not None and per_rank > len(every):
            raise ValueError(f"a node has {len(every)} cores for ranks; lower it")
        return [usable[0][:per_rank] if per_rank and per_rank <= len(usable[0]) else every[:per_rank]]
    counts = ranks_of_sockets(ranks, len(usable))
    share = min(len(socket) // count for socket, count in zip(usable, counts, strict=True) if count)
    if share == 0 or (per_rank is not None and per_rank > share):
        raise ValueError(_too_few_cores(usable, ranks, share))
    width = share if per_rank is None else per_rank
    step = share if node.device_cores else width
    return [
        socket[first * step : first * step + width]
        for socket, count in zip(usable, counts, strict=True)
        for first in range(count)
    ]


def _too_few_cores(usable: list[list[int]], ranks: int, share: int) -> str:
    total = sum(len(socket) for socket in usable)
    if share:
        return f"{ranks} ranks on a node leave each {share} of its {total} cores, on one socket; lower it"
    fitting = [
        fewer
        for fewer in range(1, total + 1)
        if all(n <= len(own) for n, own in zip(ranks_of_sockets(fewer, len(usable)), usable, strict=True))
    ]
    return f"a node has {total} cores for ranks; {max(fitting, default=1)} ranks are the most"


def devices(node: Node, ranks: int, per_rank: int) -> Devices:
    """The devices of each local rank.

    Fewer ranks than devices spread over the sockets (6 ranks on Aurora's 12 tiles use six GPUs,
    not the first half of the node); more ranks than devices share them in order (rank i of 24 uses
    device i // 2). The order is that of the cores beside them: Polaris's first rank uses device 3.

    Raises:
        ValueError: they do not fit; the text, read after "is N, but", says what does.
    """
    total = node.device_count
    if per_rank == 0:
        return Devices()
    shared = per_rank == 1 and ranks > total
    if shared and (ranks % total or ranks // total > node.ranks_per_device):
        fits = ", ".join(str(total * times) for times in range(2, node.ranks_per_device + 1))
        evenly = f", or {fits} that share them evenly" if fits else ""
        fits = f"up to {total} ranks{evenly}; or `devices_per_rank: 0`, for ranks that use none"
        raise ValueError(f"a node has {total} devices; what fits: {fits}")
    numbers = _in_order_of_cores(node)
    if shared:
        return Devices(per_rank=[str(numbers[rank * total // ranks]) for rank in range(ranks)], step=0)
    if ranks * per_rank > total:
        needed = f"{ranks} ranks with {per_rank} devices each need {ranks * per_rank}"
        works = [f"up to {total // per_rank} ranks"] if per_rank <= total else []
        works += [f"up to {total // ranks} for each"] if ranks <= total else []
        raise ValueError(f"{needed}, and a node has {total}; what fits: {' or '.join(works) or 'fewer'}")
    chosen = [[numbers[place] for place in places] for places in _spread(node, ranks, per_rank)]
    if per_rank > 1:
        return Devices(per_rank=[",".join(map(str, mine)) for mine in chosen], step=0)
    flat = [mine[0] for mine in chosen]
    mask = None if flat == list(range(total)) else ",".join(map(str, flat))
    return Devices(visible=mask, step=1)


def _in_order_of_cores(node: Node) -> list[int]:
    """Every device's number, in the order in which ranks take the cores beside them."""
    numbers = range(node.device_count)
    if not node.device_cores:
        return list(numbers)
    sockets = [set(cpus(socket)) for socket in node.sockets]

    def place(number: int) -> tuple[int, int]:
        first = cpus(node.device_cores[number])[0]
        return next(at for at, socket in enumerate(sockets) if first in socket), first

    return sorted(numbers, key=place)


def _spread(node: Node, ranks: int, per_rank: int) -> list[list[int]]:
    """The places of each rank's devices, counted along the sockets."""
    counts = ranks_of_sockets(ranks, len(node.devices))
    if any(count * per_rank > held for count, held in zip(counts, node.devices, strict=True)):
        # Ranks that need more than their socket has: blocks over the whole node.
        starts = [rank * node.device_count // ranks for rank in range(ranks)]
        return [list(range(start, start + per_rank)) for start in starts]
    chosen, first = [], 0
    for count, held in zip(counts, node.devices, strict=True):
        starts = [first + rank * held // count for rank in range(count)]
        chosen.extend([list(range(start, start + per_rank)) for start in starts])
        first += held
    return chosen


def lists_of(spec: JobSpec) -> list[str]:
    """The CPU list of each rank of a node; none where the job names no cores."""
    return spec.binding.split(":") if spec.binding is not None else []


def problems(
    spec: JobSpec, site: Site, launcher: LauncherName, layout: Layout, whole_nodes: bool
) -> Iterator[str]:
    """Why a job's `binding` cannot be."""
    if spec.binding is None:
        return
    if spec.launcher.torchrun:
        yield "is for ranks that the launcher starts, but here torchrun starts them: drop one of the two"
    elif not LAUNCHERS[launcher].takes_lists:
        able = ", ".join(name for name, other in LAUNCHERS.items() if other.takes_lists)
        yield f"cannot be passed to {launcher}; {able} accept a list of cores for each rank"
    elif LAUNCHERS[launcher].binds(spec.launcher.args):
        yield "is set twice: launcher.args binds ranks, too; keep one of the two"
    elif not whole_nodes:
        yield "names cores of whole nodes, and this job may share its nodes: use `exclusive: true`"
    lists = [cpus(one) for one in lists_of(spec)]
    if len(lists) != layout.max_per_node:
        ranks = layout.max_per_node
        yield f"has {len(lists)} lists, but a node has {ranks} ranks: write one for each, joined by :"
    node = site.node
    cited = node.cited if node else ""
    named = [core for one in lists for core in one]
    there = {core for socket in node.sockets for core in cpus(socket)} if node else set()
    usable = {core for socket in node.usable_cores() for core in socket} if node else set()
    for text in lists_of(spec):
        if part := descending(text):
            yield f"holds {part}, which descends: write the smaller number first"
    if there and (missing := sorted({*named} - there)):
        yield f"names {cpulist(missing)}, but a node's cores are {cpulist(sorted(there))} {cited}"
    elif there and (kept := sorted({*named} - usable)):
        yield f"names {cpulist(kept)}, which {site.name} keeps for the system {cited}"
    if twice := sorted(core for core, times in Counter(named).items() if times > 1):
        yield f"names {cpulist(twice)} more than once: no two ranks may have the same core"
    least = min(map(len, lists))
    if spec.cores_per_rank is not None and least and spec.cores_per_rank != least:
        yield f"gives a rank {least} cores, but cores_per_rank is {spec.cores_per_rank}: drop that"
