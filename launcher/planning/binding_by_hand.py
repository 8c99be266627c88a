"""Whether the cores that a job itself names for each rank are there, and can be told to its starter. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.config.job import JobSpec, StarterName
from launcher.config.quantities import cpulist, cpus
from launcher.config.site import Site
from launcher.starters.registry import STARTERS, Layout, binds


def lists_of(spec: JobSpec) -> list[str]:
    """The CPU list of each rank of a node; none where the job names no cores."""
    return spec.binding.split(":") if spec.binding is not None else []


def binding_problems(
    spec: JobSpec, site: Site, starter: StarterName, layout: Layout, *, whole_nodes: bool
) -> Iterator[str]:
    """Why a job's `binding` cannot be."""
    if spec.binding is None:
        return
    if spec.start.torchrun:
        yield "is for ranks that the starter starts, but here torchrun starts them: drop one of the two"
    elif not STARTERS[starter].takes_lists:
        able = ", ".join(name for name, other in STARTERS.items() if other.takes_lists)
        yield f"cannot be told to {starter}; {able} can be told the cores of each rank"
    elif binds(starter, spec.start.args):
        yield "is said twice: start.args binds ranks, too; keep one of the two"
    elif not whole_nodes:
        yield "names cores of whole nodes, and this job may share its nodes: write exclusive: true"
    lists = [cpus(one) for one in lists_of(spec)]
    if len(lists) != layout.most:
        yield f"has {len(lists)} lists, but a node has {layout.most} ranks: write one for each, joined by :"
    yield from _cores(spec, site, lists)


def _cores(spec: JobSpec, site: Site, lists: list[list[int]]) -> Iterator[str]:
    node = site.node
    cited = node.cited if node else ""
    named = [core for one in lists for core in one]
    there = {core for socket in node.sockets for core in cpus(socket)} if node else set()
    usable = {core for socket in node.usable_cores() for core in socket} if node else set()
    for text, one in zip(lists_of(spec), lists, strict=True):
        if not one:
            yield f"holds {text}, whose cores descend: write the smaller number first"
    if there and (missing := sorted({*named} - there)):
        yield f"names {cpulist(missing)}, but a node's cores are {cpulist(sorted(there))} {cited}"
    elif there and (kept := sorted({*named} - usable)):
        yield f"names {cpulist(kept)}, which {site.name} keeps for the system {cited}"
    if twice := sorted({core for core in named if named.count(core) > 1}):
        yield f"names {cpulist(twice)} more than once: no two ranks may have the same core"
    least = min(map(len, lists))
    if spec.cores_per_rank is not None and least and spec.cores_per_rank != least:
        yield f"gives a rank {least} cores, but cores_per_rank is {spec.cores_per_rank}: drop that"
