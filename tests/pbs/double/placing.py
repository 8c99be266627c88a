"""Where the chunks of a job go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.pbs.double.wire import NOT_WITH_SELECT, UNKNOWN_RESOURCE, Refused

_IN_CHUNKS = ("ncpus", "ngpus", "mpiprocs", "ompthreads", "mem", "host", "vnode")
_OF_JOBS = ("walltime", "select", "place", "filesystems", "ncpus", "mem", "nodes", "cput")
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
        asked = dict(word.partition("=")[::2] for word in rest.split(":") if word)
        for name in asked:
            if name not in _IN_CHUNKS:
                raise Refused(UNKNOWN_RESOURCE, name, colon=True)
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
        if not any(word.startswith("ncpus=") for word in words):
            words.append("ncpus=1")
        parts.append(":".join([number, *words]))
    return "+".join(parts)


def resources(asked: Mapping[str, str]) -> dict[str, str]:
    """Resource_List of a job that asks for these.

    Raises:
        Refused: it asks for what there is not, or in two ways at once.
    """
    for name in asked:
        if name not in _OF_JOBS:
            raise Refused(UNKNOWN_RESOURCE, f"Resource_List.{name}")
    found = dict(asked)
    if "select" in asked:
        for name in _COUNTED:
            if name in asked:
                raise Refused(NOT_WITH_SELECT, name)
    place = asked.get("place", "free" if "select" in asked else "pack")
    select = asked.get("select", f"1:ncpus={asked.get('ncpus', '1')}")
    chunks = chunks_of(select)
    for name in (*_COUNTED, "mpiprocs"):
        if total := sum(chunk.count(name) for chunk in chunks):
            found[name] = str(total)
    found |= {"nodect": str(len(chunks)), "place": place, "select": select}
    return dict(sorted(found.items()))


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
