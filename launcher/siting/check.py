"""Compares a profile with what the scheduler reports about the machine. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from castoff.launcher.config.quantities import clock, cpus, seconds, size
from castoff.launcher.config.site import Site
from castoff.launcher.config.site_fields import Fact, Node, OtherNodes, Queue, Range
from castoff.launcher.schedulers.machine_info import (
    Difference,
    MachineInfo,
    NodeKind,
    QueueInfo,
    outermost,
    same_memory,
)

_NOT_REPORTED = (
    "required fields, array_max_concurrent, reserved cores, device_cores, setup and env: no "
    "scheduler reports them"
)


class Comparison:
    """The differences between a profile and what its scheduler reports."""

    def __init__(self, site: Site, reported: MachineInfo):
        self.differences: list[Difference] = []
        self.not_compared: list[str] = []
        """Values that could not be compared, each with the reason."""
        source = reported.sources.get("queues")
        others = site.other_queues and not _is_complete(site.queues, source)
        self._queues("queues", site.queues, others, reported.queues, source)
        if reported.qos is not None:
            self._queues("qos", site.qos, site.other_qos, reported.qos, reported.sources.get("qos"))
        if site.default_queue is not None:
            self._compare(("default_queue",), site.default_queue, reported.default_queue)
        if site.default_qos is not None:
            self.not_compared.append("default_qos: depends on the user's account")
        limit = site.array and site.array.max_count
        self._compare(("array", "max_count"), limit, reported.array_count, site.array)
        if reported.nodes and not (site.node is None and site.other_nodes is None):
            self._nodes(site, reported)
        listed = {"qos": site.qos, "nodes": site.node}
        self.not_compared += [
            f"{about}: {reason}" for about, reason in reported.unanswered if listed.get(about)
        ]
        self.not_compared.append(_NOT_REPORTED)

    def _compare(
        self,
        path: tuple[str, ...],
        ours: Any,
        theirs: Any,
        fact: Fact | None = None,
        words: Callable[[Any], str] = str,
    ) -> None:
        if ours == theirs:
            return
        if theirs is None:
            field = ".".join(path)
            self.not_compared.append(f"{field}: {words(ours)}, which the scheduler does not report")
        else:
            self._differs(path, "nothing" if ours is None else words(ours), words(theirs), fact)

    def _differs(self, path: tuple[str, ...], ours: str, theirs: str, fact: Fact | None = None) -> None:
        source, date = (fact.source or None, fact.date or None) if fact else (None, None)
        self.differences.append(Difference(path, ours, source, date, theirs))

    def _queues(
        self,
        field: str,
        queues: Mapping[str, Queue],
        others: bool,
        reported: Mapping[str, QueueInfo],
        source: str | None,
    ) -> None:
        """`others`: whether the machine may have queues that the profile does not list."""
        for name, queue in queues.items():
            listed = reported.get(queue.listed_as or name)
            if listed is None:
                self._differs((field, name), "listed", "not listed", queue)
            elif queue.submit_to is None:
                self._limits((field, name), queue, listed, _is_from(queue.source, source, name))
        listed_names = {queue.listed_as or name for name, queue in queues.items()}
        beyond = [name for name, queue in reported.items() if queue.offered and name not in listed_names]
        passing = [name for name in beyond if reported[name].passing]
        if shown := beyond if others else passing:
            self.not_compared.append(f"{field} that the profile does not list: {', '.join(shown)}")
        if queues and not others:  # without queues in the profile, the scheduler chooses the queue
            for name in beyond:
                if name not in passing:
                    self._differs((field, name), "not listed", "listed")

    def _limits(self, path: tuple[str, str], queue: Queue, listed: QueueInfo, lifts: bool) -> None:
        """`lifts`: whether a limit no longer applies if the scheduler does not report it."""
        for part, ours in _limits_of(queue).items():
            words = clock if part.endswith("walltime") else str
            # A bound of 0 allows everything, and no profile can have it.
            theirs = getattr(listed, part) or None
            if theirs is None and ours is not None and lifts:
                self._differs((*path, part), words(ours), "no limit", queue)
            else:
                self._compare((*path, part), ours, theirs, queue, words)

    def _nodes(self, site: Site, reported: MachineInfo) -> None:
        """Compare each kind of nodes with `node` and `other_nodes`."""
        cores_word = "CPUs" if reported.counts_threads else "cores"
        matching = own_kinds(site, reported)
        others = site.other_nodes or []
        unknown = [
            kind
            for kind in reported.nodes
            if kind not in matching and not any(_is_other(other, kind) for other in others)
        ]
        if site.node is not None and not matching:
            theirs = " or ".join(kind.words(cores_word) for kind in unknown) or "none"
            self._differs(("node",), _node_words(site.node), theirs, site.node)
            if len(unknown) == 1 or site.other_nodes is None:
                unknown = []  # `_differs` has just reported them
        own_queues = {queue for kind in matching for queue in kind.queues}
        for kind in unknown:
            count = "1 node" if kind.nodes == 1 else f"{kind.nodes} nodes"
            queues = f" ({', '.join(kind.queues)})" if kind.queues else ""
            words = f"{count} with {kind.words(cores_word)}{queues}"
            if site.other_nodes is not None or not kind.queues or own_queues.intersection(kind.queues):
                self._differs(("other_nodes",), "not listed", words)
            else:
                self.not_compared.append(f"nodes in queues without the profile's nodes: {words}")
        for number, other in enumerate(others):
            if not any(_is_other(other, kind) for kind in reported.nodes):
                self._differs(("other_nodes", str(number)), _other_words(other), "no such nodes", other)


def _is_complete(queues: Mapping[str, Queue], source: str | None) -> bool:
    """Whether all queues of a profile are from the scheduler's list, as `castoff sites new` writes them."""
    return bool(queues) and all(_is_from(queue.source, source, name) for name, queue in queues.items())


def _is_from(cited: str, source: str | None, name: str) -> bool:
    """Whether a queue's limits are from the scheduler, so that limits it no longer reports are lifted."""
    return cited in (source, f"{source} {name}")


def own_kinds(site: Site, reported: MachineInfo) -> list[NodeKind]:
    """The reported kinds of nodes that may be the profile's `node`.

    If the profile lists the other kinds, but not its own cores or devices (PBS does not report them), only
    kinds with the same cores and devices as the most frequent one count.
    """
    node = site.node
    alike = [kind for kind in reported.nodes if node and is_node(node, kind, reported.counts_threads)]
    matching = [kind for kind in alike if not any(_is_other(other, kind) for other in site.other_nodes or [])]
    if node is None or site.other_nodes is None or not matching:
        return alike
    first = matching[0]
    return [
        kind
        for kind in matching
        if (node.sockets or kind.cores == first.cores) and (node.devices or kind.devices == first.devices)
    ]


def is_node(node: Node, kind: NodeKind, threads: bool) -> bool:
    """Whether nodes of a kind may be the profile's `node`. Values that either side lacks are not compared.

    `threads`: whether the kind's cores may be hardware threads.
    """
    cores, devices = sum(len(cpus(socket)) for socket in node.sockets), node.device_count
    if node.sockets and kind.cores not in (cores * factor for factor in ((1, 2, 4) if threads else (1,))):
        return False
    tiles = threads and (not kind.devices or devices % kind.devices == 0)
    if node.devices and kind.devices != devices and not tiles:
        return False
    return same_memory(_mebibytes(node.memory), kind.memory)


def _is_other(other: OtherNodes, kind: NodeKind) -> bool:
    typed = other.device_type in (None, kind.device_type)
    counted = (other.cores, other.devices) == (kind.cores, kind.devices)
    return counted and typed and same_memory(_mebibytes(other.memory), kind.memory)


def _mebibytes(memory: str | None) -> int | None:
    return None if memory is None else size(memory) >> 20


def _node_words(node: Node) -> str:
    cores = [f"{len(node.cores)} cores"] if node.sockets else []
    devices = [f"{node.device_count or 'no'} devices"] if node.devices else []
    return ", ".join([*cores, *devices, *([node.memory] if node.memory else [])])


def _other_words(other: OtherNodes) -> str:
    return NodeKind(other.cores, other.devices, other.device_type, _mebibytes(other.memory)).words()


def _limits_of(queue: Queue) -> dict[str, int | None]:
    """A queue's limits by their names in `QueueInfo`; the outermost bounds if it has several ranges."""

    def bound(choose: Callable[..., int], part: str) -> int | None:
        bounds = [getattr(accepted, part) for accepted in queue.ranges or [Range()]]
        return outermost(choose, [seconds(value) if isinstance(value, str) else value for value in bounds])

    choices = {"min_nodes": min, "max_nodes": max, "min_walltime": min, "max_walltime": max}
    limits = {part: bound(choose, part) for part, choose in choices.items()}
    if queue.select_counts == "devices":  # PBS limits the number of chunks
        limits |= {"min_nodes": min(queue.device_counts, default=1), "max_nodes": queue.most_devices}
    return {**limits, "max_jobs": queue.max_jobs, "max_devices": queue.max_devices}
