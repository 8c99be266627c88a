"""A profile compared with what the scheduler reports about the machine. Pure."""

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
    """A profile's limits beside what its scheduler reports."""

    def __init__(self, site: Site, reported: MachineInfo):
        self.differences: list[Difference] = []
        self.not_compared: list[str] = []
        """What could not be compared, and why."""
        source = reported.sources.get("queues")
        others = site.other_queues and not _is_listing(site.queues, source)
        self._queues("queues", site.queues, others, reported.queues, source)
        if reported.qos is not None:
            self._queues("qos", site.qos, site.other_qos, reported.qos, reported.sources.get("qos"))
        if site.default_queue is not None:
            self._compare("default_queue", site.default_queue, reported.default_queue)
        if site.default_qos is not None:
            self.not_compared.append("default_qos: it hangs on the user's account")
        self._compare(
            "array.max_count", site.array and site.array.max_count, reported.array_count, site.array
        )
        self._nodes(site, reported)
        wanted = {"qos": site.qos, "nodes": site.node}
        self.not_compared += [f"{about}: {why}" for about, why in reported.unanswered if wanted.get(about)]
        self.not_compared.append(_NOT_REPORTED)

    def _compare(
        self, field: str, ours: Any, theirs: Any, fact: Fact | None = None, words: Callable[[Any], str] = str
    ) -> None:
        if ours == theirs:
            return
        if theirs is None:
            self.not_compared.append(f"{field}: {words(ours)}, which the scheduler does not report")
        else:
            self._differs(field, "nothing" if ours is None else words(ours), words(theirs), fact)

    def _differs(self, field: str, ours: str, theirs: str, fact: Fact | None = None) -> None:
        source, date = (fact.source, fact.date) if fact else (None, None)
        self.differences.append(Difference(field, ours, source, date, theirs))

    def _queues(
        self,
        field: str,
        known: Mapping[str, Queue],
        others: bool,
        reported: Mapping[str, QueueInfo],
        source: str | None,
    ) -> None:
        for name, queue in known.items():
            listed = reported.get(queue.listed_as or name)
            if listed is None:
                self._differs(f"{field}.{name}", "listed", "not listed", queue)
            elif queue.submit_to is None:
                for part, ours in _limits(queue).items():
                    words = clock if part.endswith("walltime") else str
                    # A bound of nothing bounds nothing, and no profile can have it.
                    theirs = getattr(listed, part) or None
                    if theirs is None and ours is not None and _is_from(queue.source, source, name):
                        self._differs(f"{field}.{name}.{part}", words(ours), "no limit", queue)
                        continue
                    self._compare(f"{field}.{name}.{part}", ours, theirs, queue, words)
        listed_names = {queue.listed_as or name for name, queue in known.items()}
        beyond = [name for name, queue in reported.items() if queue.offered and name not in listed_names]
        passing = [name for name in beyond if reported[name].passing]
        if shown := beyond if others else passing:
            self.not_compared.append(f"{field} that the profile does not list: {', '.join(shown)}")
        if known and not others:  # a site that lists none and takes none chooses it itself
            for name in [one for one in beyond if one not in passing]:
                self._differs(f"{field}.{name}", "not listed", "listed")

    def _nodes(self, site: Site, reported: MachineInfo) -> None:
        """Every kind of nodes that there is beside those that the profile lists, and the other way round."""
        if not reported.nodes or (site.node is None and site.other_nodes is None):
            return
        threads = reported.counts_threads
        own = own_kinds(site, reported)
        listed = [
            (one, [kind for kind in reported.nodes if _is_other(one, kind)]) for one in site.other_nodes or []
        ]
        known = [*own, *(kind for _, kinds in listed for kind in kinds)]
        plain = "CPUs" if threads else "cores"
        unknown = [one for one in reported.nodes if one not in known]
        if site.node is not None and not own:
            words = _node_words(site.node)
            self._differs(
                "node", words, " or ".join(one.words(plain) for one in unknown) or "none", site.node
            )
            unknown = [one for one in unknown if site.other_nodes is not None] if len(unknown) > 1 else []
        near = {queue for kind in own for queue in kind.queues}
        for kind in unknown:
            count = "1 node" if kind.nodes == 1 else f"{kind.nodes} nodes"
            words = f"{count} with {kind.words(plain)}" + (
                f" ({', '.join(kind.queues)})" if kind.queues else ""
            )
            if site.other_nodes is not None or not kind.queues or near.intersection(kind.queues):
                self._differs("other_nodes", "not listed", words)
            else:
                self.not_compared.append(f"nodes of queues where the profile's are not: {words}")
        for number, (one, kinds) in enumerate(listed):
            if not kinds:
                self._differs(f"other_nodes.{number}", _other_words(one), "no such nodes", one)


def _is_listing(known: Mapping[str, Queue], source: str | None) -> bool:
    """Whether all queues of a profile are the scheduler's own list, as `castoff sites new` writes it."""
    return bool(known) and all(_is_from(queue.source, source, name) for name, queue in known.items())


def _is_from(where: str, source: str | None, name: str) -> bool:
    """Whether what is known of a queue or QOS is from the scheduler: what it no longer tells is lifted."""
    return where in (source, f"{source} {name}")


def own_kinds(site: Site, reported: MachineInfo) -> list[NodeKind]:
    """The kinds that may be the profile's nodes.

    Where the profile lists the other kinds and does not know its own nodes' cores or devices, as PBS does not
    tell them, these are those of the most frequent one.
    """
    node = site.node
    found = [one for one in reported.nodes if node and is_node(node, one, reported.counts_threads)]
    mine = [one for one in found if not any(_is_other(other, one) for other in site.other_nodes or [])]
    if node is None or site.other_nodes is None or not mine:
        return found
    return [
        one
        for one in mine
        if (node.sockets or one.cores == mine[0].cores) and (node.devices or one.devices == mine[0].devices)
    ]


def is_node(node: Node, kind: NodeKind, threads: bool) -> bool:
    """Whether nodes of a kind are the profile's, as far as both say what they have."""
    cores, devices = sum(len(cpus(socket)) for socket in node.sockets), node.device_count
    if node.sockets and kind.cores not in (cores * each for each in ((1, 2, 4) if threads else (1,))):
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
    cores = sum(len(cpus(socket)) for socket in node.sockets)
    said = [f"{cores} cores"] if cores else []
    said += [f"{node.device_count or 'no'} devices"] if node.devices else []
    return ", ".join([*said, *([node.memory] if node.memory else [])])


def _other_words(other: OtherNodes) -> str:
    return NodeKind(other.cores, other.devices, other.device_type, _mebibytes(other.memory)).words()


def _limits(queue: Queue) -> dict[str, int | None]:
    """A queue's as `QueueInfo` has them: of several ranges their outermost bounds."""

    def bound(choose: Callable[..., int], part: str) -> int | None:
        held = [getattr(one, part) for one in queue.ranges or [Range()]]
        return outermost(choose, [seconds(one) if isinstance(one, str) else one for one in held])

    choices = {"min_nodes": min, "max_nodes": max, "min_walltime": min, "max_walltime": max}
    bounds = {part: bound(choose, part) for part, choose in choices.items()}
    if queue.select_counts == "devices":  # PBS bounds the number of chunks
        bounds |= {"min_nodes": min(queue.device_counts, default=1), "max_nodes": queue.most_devices}
    return {**bounds, "max_jobs": queue.max_jobs, "max_devices": queue.max_devices}
