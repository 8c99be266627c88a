"""A profile's text, updated where the scheduler now reports something else. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from castoff.launcher.config.quantities import cpus, units
from castoff.launcher.config.site import Site
from castoff.launcher.config.site_fields import Node, Queue
from castoff.launcher.errors import InvalidInput
from castoff.launcher.schedulers.machine_info import MachineInfo, NodeKind, QueueInfo, memory_words
from castoff.launcher.siting.check import Comparison, is_node, own_kinds
from castoff.launcher.siting.draft import (
    Draft,
    chosen_kind,
    node_lines,
    other_nodes_lines,
    queue_lines,
    ranges_of,
    ranges_text,
)
from castoff.launcher.siting.lines import clean
from castoff.launcher.typed.document import Document
from castoff.launcher.typed.editing import CannotEdit, has, put, put_block, remove

_BOUNDS = ("min_nodes", "max_nodes", "min_walltime", "max_walltime")
_UNBOUND = {"min_nodes": 1}
_LIMITS = (*_BOUNDS, "max_jobs", "max_devices")


class Updated(NamedTuple):
    """A profile's new text."""

    text: str
    left: list[str]
    """What could not be written, and why."""


class _Update:
    """Writes differences into a text, one after the other."""

    def __init__(self, text: str, site: Site, info: MachineInfo, draft: Draft, load: Callable[[str], Site]):
        self.text, self.site, self.info, self.draft, self.load = text, site, info, draft, load
        self.left: list[str] = []
        self._bounds: dict[tuple[str, str], dict[str, Any]] = {}
        self._gone: list[tuple[str, str]] = []

    def write(self, fields: Iterable[str]) -> None:
        """Write what differs in these fields, as a comparison names them."""
        done: set[tuple[str, ...]] = set()
        for field in fields:
            place, part = self._place(field)
            try:
                if len(place) == 2:
                    self._queue(place[0], place[1], part)
                elif place not in done:
                    getattr(self, f"_{place[0]}")()
            except CannotEdit as why:
                self.left.append(f"{field}: {why}")
            done.add(place)
        # Last, as then all else is as it will be: null where the profile still inherits one of that name.
        for kind, name in self._gone:
            try:
                held = getattr(self.load(self.text), kind)
            except InvalidInput:  # which whoever writes the text finds, too
                return
            if name in held:
                self.text = put(self.text, (kind, name), "null")

    def _place(self, field: str) -> tuple[tuple[str, ...], str | None]:
        """The entry that a field is in, and the limit of a queue that it is."""
        first, _, rest = field.partition(".")
        if first not in ("queues", "qos"):
            return (first,), None
        name, _, part = rest.rpartition(".")
        return ((first, name), part) if part in _LIMITS and name else ((first, rest), None)

    def _queue(self, field: str, name: str, part: str | None) -> None:
        known: dict[str, Queue] = getattr(self.site, field)
        listed: dict[str, QueueInfo] = dict((self.info.queues if field == "queues" else self.info.qos) or {})
        if name not in known:
            lines = clean(queue_lines(self.draft, self.info, field, name, listed[name]))
            self.text = put_block(self.text, (field, name), lines)
        elif part is None:
            self.text = remove(self.text, (field, name))
            self._gone.append((field, name))
        else:
            queue, theirs = known[name], listed[known[name].listed_as or name]
            self._limit(field, name, part, queue, theirs)

    def _limit(self, field: str, name: str, part: str, queue: Queue, theirs: QueueInfo) -> None:
        if part not in _BOUNDS:
            limit = getattr(theirs, part)
            path = (field, name, part)
            self.text = put(self.text, path, str(limit)) if limit else remove(self.text, path)
        elif queue.select_counts == "devices" and part.endswith("_nodes"):
            self.left.append(f"{field}.{name}.{part}: counts devices there; change device_counts by hand")
            return
        elif theirs.routes_to:
            ranges = ranges_of(theirs, self.info)
            self.text = put(self.text, (field, name, "ranges"), ranges_text(ranges))
        elif len(queue.ranges) > 1:
            say = (
                "has several ranges, and the scheduler names their outermost bounds alone; change it by hand"
            )
            self.left.append(f"{field}.{name}.{part}: {say}")
            return
        else:
            held = self._bounds.setdefault((field, name), _bounds(queue))
            bound = getattr(theirs, part)
            held[part] = units(bound) if bound and part.endswith("walltime") else bound
            ordered = {one: held[one] for one in _BOUNDS if held.get(one) not in (None, _UNBOUND.get(one))}
            path = (field, name, "ranges")
            self.text = put(self.text, path, ranges_text([ordered])) if ordered else remove(self.text, path)
        source = self.info.sources.get(field, "")
        self._cite((field, name), queue.source, f"{source} {name}" if field == "queues" else source)

    def _cite(self, path: tuple[str, ...], old: str, new: str) -> None:
        """Beside the old source: what the scheduler does not tell is still from there."""
        source = old if new in old else f"{old}; {new}"
        self.text = put(self.text, (*path, "source"), json.dumps(source, ensure_ascii=False))
        self.text = put(self.text, (*path, "date"), self.draft.date)

    def _default_queue(self) -> None:
        self.text = put(
            self.text, ("default_queue",), json.dumps(self.info.default_queue, ensure_ascii=False)
        )

    def _array(self) -> None:
        self.text = put(self.text, ("array", "max_count"), str(self.info.array_count))
        self.text = put(self.text, ("array", "source"), json.dumps(self.info.sources.get("array", "")))
        self.text = put(self.text, ("array", "date"), self.draft.date)

    def _kind(self) -> NodeKind | None:
        """The kind of nodes that the profile's jobs get."""
        queue = self.site.defaults.queue or self.site.default_queue or self.info.default_queue
        return chosen_kind(self.info, queue, self.site.defaults.device_type) or chosen_kind(self.info, queue)

    def _node(self) -> None:
        kind = self._kind()
        node = self.site.node
        if kind is None or node is None:
            return
        if is_node(msgspec.structs.replace(node, memory=None), kind, self.info.counts_threads):
            # The memory alone is another.
            self.text = put(self.text, ("node", "memory"), memory_words(kind.memory or 0))
            self._cite(("node",), node.source, self.info.sources.get("nodes", ""))
            return
        before = self.text
        self.text = put_block(self.text, ("node",), clean(node_lines(self.draft, self.info, kind)))
        for field, value in _kept(node, before, self.text):
            self.text = put(self.text, ("node", field), value)

    def _other_nodes(self) -> None:
        """All of them anew, beside the node that the profile has by now."""
        kind = self._kind()
        own = own_kinds(self.site, self.info)
        lines = clean(other_nodes_lines(self.draft, self.info, own or [one for one in (kind,) if one]))
        self.text = put_block(
            self.text, ("other_nodes",), [line for line in lines if not line.startswith("#")]
        )


def _bounds(queue: Queue) -> dict[str, Any]:
    """The bounds of a queue that has one range at the most."""
    return {name: value for one in queue.ranges for name, value in msgspec.structs.asdict(one).items()}


def _kept(node: Node, before: str, after: str) -> Iterator[tuple[str, str]]:
    """Fields of the old node that hold of the new one too, and what it must not inherit."""
    held = Document.parse(after, "profile").data["node"]
    there = {core for socket in held.get("sockets", []) for core in cpus(socket)}
    if node.reserved_cores and there.issuperset(cpus(node.reserved_cores)):
        yield "reserved_cores", json.dumps(node.reserved_cores)
    elif node.reserved_cores and not has(before, ("node", "reserved_cores")):
        yield "reserved_cores", "null"
    if node.device_cores and not has(before, ("node", "device_cores")):
        yield "device_cores", "[]"
    if node.device_variable and held.get("devices") and "device_variable" not in held:
        yield "device_variable", node.device_variable
    if node.ranks_per_device > 1:
        yield "ranks_per_device", str(node.ranks_per_device)
    if node.exclusive and "exclusive" not in held:
        yield "exclusive", "true"


def updated(
    text: str, site: Site, info: MachineInfo, found: Comparison, draft: Draft, load: Callable[[str], Site]
) -> Updated:
    """The text of a site's own profile, with all that `found` says differs as the scheduler says it.

    `load`: what a text would say once it is resolved.
    """
    update = _Update(text, site, info, draft, load)
    update.write(one.field for one in found.differences)
    return Updated(update.text, update.left)
