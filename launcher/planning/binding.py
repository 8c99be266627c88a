"""Which cores each local rank gets: chosen from the node's topology, or set by the user.

castoff's ranks fill the sockets in order, as evenly as possible, and each rank stays on the cores of one
socket, so that it never reaches its device across the socket link. Only a node's single rank may use both
sockets. Every rank gets as many cores as the rank that has the fewest, because ranks of unequal speed wait
for the slowest at every step. If the site knows which cores are near which device, a rank's cores begin at
the rank's share of the socket, near its device. A job, or flags of the launcher, may also name the cores of
each rank. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import msgspec

from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_fields import LauncherName
from castoff.launcher.config.quantities import cpulist, cpus, descending
from castoff.launcher.config.site import Site
from castoff.launcher.config.site_fields import Node
from castoff.launcher.errors import shown
from castoff.launcher.launchers.base import Layout
from castoff.launcher.launchers.commands import LAUNCHERS


def ranks_of_sockets(ranks: int, sockets: int) -> list[int]:
    """Return the number of a node's ranks on each socket: consecutive ranks share a socket, from the first
    socket on.
    """
    firsts = [-(-socket * ranks // sockets) for socket in range(sockets + 1)]
    return [after - first for first, after in pairwise(firsts)]


def cores(node: Node, ranks: int, per_rank: int | None) -> list[list[int]]:
    """Return the cores of each local rank; empty if the site's profile does not list the cores of its nodes.

    `per_rank`: the number of cores of each rank; None: an equal share of the socket.

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


class Bound(msgspec.Struct, frozen=True):
    """A binding of a node's ranks that the user or the site has set, in place of castoff's."""

    field: str
    """The field that sets the binding: `binding`, `launcher.args`, or the site's `launcher_args`."""
    words: str
    """That field's value."""
    cpus: list[list[int]] | None
    """The CPUs of each local rank; None: only the launcher knows them."""
    problem: str | None = None
    """Why this binding is impossible, as a text that follows the field's name."""


def bound(
    spec: JobSpec, site: Site, launcher: LauncherName, site_args: list[str], ranks: int
) -> Bound | None:
    """Return the binding that the job sets, or else that of the launcher's flags, or else the site's; None:
    nobody sets a binding.
    """
    if spec.binding is not None:
        return Bound("binding", spec.binding, [cpus(one) for one in lists_of(spec)])
    for field, words in (("launcher.args", spec.launcher.args), ("launcher_args", site_args)):
        if LAUNCHERS[launcher].binds(words):
            return _by_flags(field, words, site.node, launcher, ranks)
    return None


def _by_flags(field: str, words: list[str], node: Node | None, launcher: LauncherName, ranks: int) -> Bound:
    said = LAUNCHERS[launcher].binding(words)
    usable = [core for socket in node.usable_cores() for core in socket] if node else []
    try:
        found = LAUNCHERS[launcher].bound(words, ranks, usable)
    except ValueError as error:
        return Bound(field, said, None, f"binds ranks by {shown(said)}, {error}")
    there = node.cpus_of(node.cores) if node else []
    named = sorted({cpu for own in found or [] for cpu in own})
    if node and there and (missing := [cpu for cpu in named if cpu not in {*there}]):
        problem = f"binds ranks by {shown(said)}, which names {cpulist(missing)}, but {_has(node)}"
        return Bound(field, said, None, problem)
    return Bound(field, said, found)


def _has(node: Node) -> str:
    """Describe a node's cores: `a node's cores are 0-103, and 104-207 their further hardware threads`."""
    cores = node.cores
    threads = sorted({*node.cpus_of(cores)} - {*cores})
    further = f", and {cpulist(threads)} their further hardware threads" if threads else ""
    return f"a node's cores are {cpulist(cores)}{further} {node.cited}"


def lists_of(spec: JobSpec) -> list[str]:
    """Return the CPU list of each rank of a node; empty if the job does not name cores."""
    return spec.binding.split(":") if spec.binding is not None else []


def width(node: Node | None, lists: list[list[int]]) -> int:
    """Return the number of cores of the rank with the fewest; a core counts once, however many of its threads
    are listed.
    """
    return min(len(node.cores_of(one)) if node and node.sockets else len(one) for one in lists)


def problems(
    spec: JobSpec, site: Site, launcher: LauncherName, layout: Layout, whole_nodes: bool
) -> Iterator[str]:
    """Yield why a job's `binding` is impossible on this site."""
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
    there = {*node.cpus_of(node.cores)} if node else set()
    usable = {*node.cpus_of([core for socket in node.usable_cores() for core in socket])} if node else set()
    for text in lists_of(spec):
        if part := descending(text):
            yield f"holds {part}, which descends: write the smaller number first"
    if node and there and (missing := sorted({*named} - there)):
        yield f"names {cpulist(missing)}, but {_has(node)}"
    elif there and (kept := sorted({*named} - usable)):
        yield f"names {cpulist(kept)}, which {site.name} keeps for the system {cited}"
    if twice := sorted(core for core, times in Counter(named).items() if times > 1):
        yield f"names {cpulist(twice)} more than once: no two ranks may have the same core"
    least = width(node, lists)
    if spec.cores_per_rank is not None and least and spec.cores_per_rank != least:
        yield f"gives a rank {least} cores, but cores_per_rank is {spec.cores_per_rank}: drop that"
