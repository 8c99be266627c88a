"""Where the chunks of a job go."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.pbs.double.wire import (
    BAD_NODES,
    ILLEGAL_VALUE,
    NODES_WITH_SELECT,
    NOT_WITH_SELECT,
    TWICE_IN_CHUNK,
    UNKNOWN_RESOURCE,
    Refused,
)

_IN_CHUNKS = ("ncpus", "ngpus", "mpiprocs", "ompthreads", "mem", "host", "vnode")
_OF_JOBS = ("walltime", "select", "place", "filesystems", "ncpus", "ngpus", "mem", "nodes", "cput")
_OF_CHUNKS_ALONE = ("naccelerators", "ngpus", "ncpus")
_COUNTED = ("ncpus", "ngpus")


@dataclass
class Chunk:
    """One of those that -l select asks for."""

    asked: dict[str, str]

    def count(self, resource: str) -> int:
        return int(self.asked.get(resource, "0"))

    @property
    def host(self) -> str | None:
        return self.asked.get("host") or self.asked.get("vnode")

    @property
    def processes(self) -> int:
        """Its lines in the node file."""
        return int(self.asked.get("mpiprocs", "1"))

    @property
    def threads(self) -> str:
        return self.asked.get("ompthreads") or self.asked["ncpus"]


@dataclass
class Node:
    """A node as the scheduler sees it."""

    name: str
    has: dict[str, int]
    used_by: dict[str, list[Chunk]] = field(default_factory=dict)
    exclusive: bool = False
    slots: dict[str, list[int]] = field(default_factory=dict)
    up: bool = False

    def free(self, resource: str) -> int:
        used = sum(chunk.count(resource) for chunks in self.used_by.values() for chunk in chunks)
        return self.has[resource] - used


def chunks_of(select: str) -> list[Chunk]:
    """What a select specification asks for.

    Raises:
        Refused: it asks for what there is not.
    """
    found = []
    for part in select.split("+"):
        number, _, rest = part.partition(":")
        if not number.isdigit():
            number, rest = "1", part
        asked = {}
        for name, _, value in (word.partition("=") for word in rest.split(":") if word):
            if not value:
                raise Refused(ILLEGAL_VALUE, "Resource_List.select")
            if name.lower() not in _IN_CHUNKS:
                raise Refused(UNKNOWN_RESOURCE, name, colon=True)
            if name in asked:
                raise Refused(TWICE_IN_CHUNK, name)
            asked[name] = value
        if not part:
            raise Refused(ILLEGAL_VALUE, "Resource_List.select")
        asked.setdefault("ncpus", "1")
        found += [Chunk(asked) for _ in range(int(number))]
    return found


def with_defaults(select: str) -> str:
    """The same with ncpus in each part, as the scheduler sees it."""
    parts = []
    for part in select.split("+"):
        number, _, rest = part.partition(":")
        if not number.isdigit():
            number, rest = "1", part
        words = [word for word in rest.split(":") if word]
        if not any(word.lower().startswith("ncpus=") for word in words):
            words.append("ncpus=1")
        parts.append(":".join([number, *words]))
    return "+".join(parts)


def resources(asked: Mapping[str, str]) -> dict[str, str]:
    """Resource_List of a job that asks for these.

    Raises:
        Refused: it asks for what there is not, or in two ways at once.
    """
    for name in asked:
        if name not in (*_OF_JOBS, *_OF_CHUNKS_ALONE):
            raise Refused(UNKNOWN_RESOURCE, f"Resource_List.{name}")
    found = dict(asked)
    if "nodes" in asked:
        if {"select", "place"} & asked.keys():
            raise Refused(NODES_WITH_SELECT, "nodes")
        found |= dict(_of_nodes(asked))
    else:
        for name in _OF_CHUNKS_ALONE:
            if name in asked and {"select", "place"} & asked.keys():
                raise Refused(NOT_WITH_SELECT, name)
        words = [f"{name}={asked[name]}" for name in ("mem", "ncpus", "ngpus") if name in asked]
        if "ncpus" not in asked:
            words.append("ncpus=1")
        found.setdefault("place", "free" if "select" in asked else "pack")
        found.setdefault("select", ":".join(["1", *words]))
    chunks = chunks_of(found["select"])
    for name in (*_COUNTED, "mpiprocs"):
        if total := sum(chunk.count(name) for chunk in chunks):
            found[name] = str(total)
    if "select" in asked and any("mem" in chunk.asked for chunk in chunks):
        found["mem"] = f"{sum(int(chunk.asked.get('mem', '0mb')[:-2]) for chunk in chunks)}mb"
    return dict(sorted({**found, "nodect": str(len(chunks))}.items()))


def _of_nodes(asked: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What -l nodes=2:ppn=4 is in chunks, between which the job's memory is divided."""
    spec = re.fullmatch(r"(\d+)(?::ppn=(\d+))?", asked["nodes"])
    if spec is None:
        raise Refused(BAD_NODES)
    nodes, processes = int(spec[1]), spec[2] or "1"
    words = [spec[1], f"ncpus={processes}"]
    if "mem" in asked:
        kilobytes = int(asked["mem"].removesuffix("mb")) << 10
        words.append(f"mem={kilobytes // nodes}KB")
        yield "mem", f"{kilobytes}kb"
    yield "select", ":".join([*words, f"mpiprocs={processes}"])
    yield "place", "scatter"


def place(chunks: Sequence[Chunk], how: str, nodes: Sequence[Node]) -> list[tuple[Node, Chunk]] | None:
    """A node for each chunk, in order; None: there is no room now."""
    ways = how.split(":")
    scatter, pack, alone = "scatter" in ways, "pack" in ways, "excl" in ways or "exclhost" in ways
    usable = [node for node in nodes if node.up and not node.exclusive and not (alone and node.used_by)]
    if pack:
        for node in usable:
            if found := _fit(chunks, [node], once=False):
                return found
        return None
    return _fit(chunks, usable, once=scatter)


def _fit(chunks: Sequence[Chunk], nodes: Sequence[Node], *, once: bool) -> list[tuple[Node, Chunk]] | None:
    left = {node.name: {name: node.free(name) for name in _COUNTED} for node in nodes}
    taken: set[str] = set()
    found = []
    for chunk in chunks:
        for node in nodes:
            if chunk.host not in (None, node.name) or (once and node.name in taken):
                continue
            if all(chunk.count(name) <= left[node.name][name] for name in _COUNTED):
                break
        else:
            return None
        for name in _COUNTED:
            left[node.name][name] -= chunk.count(name)
        taken.add(node.name)
        found.append((node, chunk))
    return found
