"""Writes the differences from the scheduler's report into a profile's text. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    node_entries,
    other_nodes_entries,
    queue_entry,
    ranges_of,
    source_of,
)
from castoff.launcher.siting.entries import Comment, Entry, lines_of
from castoff.launcher.typed.document import Document
from castoff.launcher.typed.editing import CannotEdit, has, put, put_block, remove

_BOUNDS = ("min_nodes", "max_nodes", "min_walltime", "max_walltime")


class Updated(NamedTuple):
    """A profile's new text."""

    text: str
    left: list[str]
    """Values that could not be written, each with the reason."""


class _Update:
    """A profile's text while it is being updated."""

    def __init__(self, text: str, site: Site, info: MachineInfo, draft: Draft):
        self.text, self.site, self.info, self.draft = text, site, info, draft
        self.removed: list[tuple[str, str]] = []
        """Queues and QOS that the scheduler no longer has."""

    def write(self, path: tuple[str, ...]) -> None:
        """Write the value that the scheduler reports.

        Raises:
            CannotEdit: the text's form allows only a person to change the value.
        """
        match path:
            case ("queues" | "qos" as field, name):
                self._queue(field, name)
            case ("queues" | "qos" as field, name, limit):
                self._limit(field, name, limit)
            case ("default_queue",):
                self._put(path, self.info.default_queue)
            case ("array", "max_count"):
                self._put(path, self.info.array_count)
                self._put(("array", "source"), self.info.sources.get("array", ""))
                self._put(("array", "date"), self.draft.date)
            case ("node",):
                self._node()
            case _:
                self._other_nodes()

    def _put(self, path: tuple[str, ...], value: Any) -> None:
        self.text = put(self.text, path, value)

    def _put_or_remove(self, path: tuple[str, ...], value: Any) -> None:
        self.text = put(self.text, path, value) if value else remove(self.text, path)

    def _put_block(self, path: tuple[str, ...], *entries: Entry) -> None:
        self.text = put_block(self.text, path, [*lines_of(entries)])

    def _cite(self, path: tuple[str, ...], cited: str, source: str) -> None:
        """Add a source to the cited one, which still applies to values that the scheduler does not report."""
        self._put((*path, "source"), cited if source in cited else f"{cited}; {source}")
        self._put((*path, "date"), self.draft.date)

    def _queue(self, field: str, name: str) -> None:
        """Add a queue that the profile lacks, or remove one that the scheduler no longer has."""
        if name in getattr(self.site, field):
            self.text = remove(self.text, (field, name))
            self.removed.append((field, name))
        else:
            reported: dict[str, QueueInfo] = getattr(self.info, field)
            self._put_block((field, name), queue_entry(self.draft, self.info, field, name, reported[name]))

    def _limit(self, field: str, name: str, limit: str) -> None:
        queue: Queue = getattr(self.site, field)[name]
        reported: QueueInfo = getattr(self.info, field)[queue.listed_as or name]
        if limit not in _BOUNDS:
            self._put_or_remove((field, name, limit), getattr(reported, limit))
        elif queue.select_counts == "devices" and limit.endswith("_nodes"):
            raise CannotEdit("counts devices there; change device_counts by hand")
        elif reported.routes_to:
            self._put((field, name, "ranges"), ranges_of(reported, self.info))
        elif len(queue.ranges) > 1:
            raise CannotEdit(
                "has several ranges, and the scheduler reports only their outermost bounds; change it by hand"
            )
        else:
            bounds = self._bounds(field, name)
            bound = getattr(reported, limit)
            bounds[limit] = units(bound) if bound and limit.endswith("walltime") else bound
            ordered = {part: bounds[part] for part in _BOUNDS if bounds.get(part)}
            if ordered.get("min_nodes") == 1:
                del ordered["min_nodes"]  # allows everything
            self._put_or_remove((field, name, "ranges"), [ordered] if ordered else None)
        self._cite((field, name), queue.source, source_of(self.info, field, name))

    def _bounds(self, field: str, name: str) -> dict[str, Any]:
        """The bounds of a queue with one range, from the updated text, or else as inherited."""
        path = (field, name, "ranges")
        if has(self.text, path):
            ranges = Document.parse(self.text, "profile").data[field][name]["ranges"]
            return dict(ranges[0]) if ranges else {}
        inherited: list[Any] = getattr(self.site, field)[name].ranges
        return msgspec.structs.asdict(inherited[0]) if inherited else {}

    def _kind(self) -> NodeKind | None:
        """The kind of nodes on which the profile's jobs run."""
        queue = self.site.defaults.queue or self.site.default_queue or self.info.default_queue
        return chosen_kind(self.info, queue, self.site.defaults.device_type) or chosen_kind(self.info, queue)

    def _node(self) -> None:
        kind, node = self._kind(), self.site.node
        if kind is None or node is None:
            return
        if is_node(msgspec.structs.replace(node, memory=None), kind, self.info.counts_threads):
            # Only the memory differs.
            self._put(("node", "memory"), memory_words(kind.memory or 0))
            self._cite(("node",), node.source, self.info.sources.get("nodes", ""))
            return
        before = self.text
        self._put_block(("node",), *node_entries(self.draft, self.info, kind))
        for field, value in _kept(node, before, self.text):
            self._put(("node", field), value)

    def _other_nodes(self) -> None:
        """Write the whole section again, to fit the updated `node`."""
        kind = self._kind()
        matching = own_kinds(self.site, self.info) or ([kind] if kind else [])
        entries = other_nodes_entries(self.draft, self.info, matching)
        # Leave out the comment: the profile has it already, or a person has removed it.
        self._put_block(("other_nodes",), *(entry for entry in entries if not isinstance(entry, Comment)))


def _kept(node: Node, before: str, after: str) -> Iterator[tuple[str, Any]]:
    """Fields of the old node that still apply to the new one, and values that prevent inheriting others."""
    written = Document.parse(after, "profile").data["node"]
    cores = {core for socket in written.get("sockets", []) for core in cpus(socket)}
    if node.reserved_cores and cores.issuperset(cpus(node.reserved_cores)):
        yield "reserved_cores", node.reserved_cores
    elif node.reserved_cores and not has(before, ("node", "reserved_cores")):
        yield "reserved_cores", None
    if node.device_cores and not has(before, ("node", "device_cores")):
        yield "device_cores", []
    if node.device_variable and written.get("devices") and "device_variable" not in written:
        yield "device_variable", node.device_variable
    if node.ranks_per_device > 1:
        yield "ranks_per_device", node.ranks_per_device
    if node.exclusive and "exclusive" not in written:
        yield "exclusive", True


def updated(
    text: str,
    site: Site,
    info: MachineInfo,
    comparison: Comparison,
    draft: Draft,
    load: Callable[[str], Site],
) -> Updated:
    """Write all differences into the text of a site's profile, as the scheduler reports them.

    `load`: resolves a profile's text into its site.
    """
    update = _Update(text, site, info, draft)
    fields: dict[tuple[str, ...], str] = {}
    for path, field in ((difference.path, difference.field) for difference in comparison.differences):
        fields.setdefault(path[:1] if path[0] == "other_nodes" else path, field)  # all written together
    left = []
    for path, field in fields.items():
        try:
            update.write(path)
        except CannotEdit as error:
            left.append(f"{field}: {error}")
    return Updated(_without_inherited(update, load), left)


def _without_inherited(update: _Update, load: Callable[[str], Site]) -> str:
    """The text with null for each removed queue that the profile would otherwise inherit."""
    text = update.text
    try:
        resolved = load(text) if update.removed else None
    except InvalidInput:  # reported when the text is written
        return text
    for field, name in update.removed:
        if name in getattr(resolved, field):
            text = put(text, (field, name), None)
    return text
