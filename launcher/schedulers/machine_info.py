"""What a scheduler reports about its machine, in the same form for every scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

USER = "<user>"
"""A placeholder in a question's command for the name of the user who asks."""


class Question(NamedTuple):
    """A question about the machine: a command whose answer describes it."""

    about: str
    argv: list[str]
    optional: bool = False
    """Whether the command may fail, since the machine may lack the part that it asks about, such as
    accounting.
    """


class QueueInfo(NamedTuple):
    """The widest limits of a queue, a partition or a QOS; None: the scheduler sets no limit."""

    min_nodes: int | None = 1
    max_nodes: int | None = None
    min_walltime: int | None = None
    """Seconds."""
    max_walltime: int | None = None
    max_jobs: int | None = None
    """The most queued and running jobs of one user, or of one project if that is less."""
    max_devices: int | None = None
    """The most devices that a job may have, if jobs have one node at most; otherwise the share per node is
    unknown.
    """
    offered: bool = True
    """Whether users are meant to name the queue: not if it is hidden, closed or filled by a routing queue."""
    routes_to: tuple[str, ...] = ()
    """The queues to which a routing queue sends its jobs; users do not name those."""
    passing: bool = False
    """Whether the queue belongs to a reservation and disappears with it."""
    accepts_jobs: bool = True
    """Whether the queue accepts submissions now."""
    starts_jobs: bool = True
    """Whether the queue starts pending jobs now."""
    accounts: tuple[str, ...] = ()
    """The accounts whose jobs the queue accepts; empty: all accounts."""
    notes: tuple[str, ...] = ()
    """Notes for the user, such as who may use the queue."""


class NodeKind(NamedTuple):
    """A group of nodes that are alike. In a field, None: the scheduler does not report the value."""

    cores: int
    """The number of physical cores, or of hardware threads if the scheduler `counts_threads`."""
    devices: int = 0
    device_type: str | None = None
    memory: int | None = None
    """The memory in MiB of the node with the least."""
    nodes: int = 1
    """The number of such nodes."""
    sockets: int | None = None
    cpus_per_core: int = 1
    device_sockets: tuple[int, ...] = ()
    """The sockets that the node's devices belong to."""
    features: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    """The queues whose jobs may get such a node; empty: all queues."""
    whole: bool = False
    """Whether a job always gets such a node as a whole."""
    reserved: int = 0
    """The number of cores of each node that no job gets."""

    def words(self, plain: str = "cores") -> str:
        """Describe one node of this kind: cores, devices and memory; `plain`: the word for its cores."""
        words = f"{self.cores} {plain}, " + (
            f"{self.devices} {self.device_type or 'devices'}" if self.devices else "no devices"
        )
        return words if self.memory is None else f"{words}, {memory_words(self.memory)}"


class AwayHost(NamedTuple):
    """A host that gets no jobs now, since it is drained or down."""

    name: str
    state: str
    """The host's state, in the scheduler's words."""
    reason: str = ""
    """An administrator's explanation; empty: there is none."""
    queues: tuple[str, ...] = ()
    """The queues whose jobs the host would get; empty: all queues."""


class User(NamedTuple):
    """What the scheduler's accounting reports about the user who asks."""

    accounts: tuple[str, ...] = ()
    default_account: str | None = None
    qos: tuple[str, ...] = ()
    default_qos: str | None = None


class MachineInfo(NamedTuple):
    """Everything that a scheduler reports about its machine."""

    queues: Mapping[str, QueueInfo] = {}
    qos: Mapping[str, QueueInfo] | None = None
    """The limits of each QOS. None: there is no accounting, or the scheduler has no QOS."""
    default_queue: str | None = None
    array_count: int | None = None
    """The most members that an array may have."""
    nodes: Sequence[NodeKind] = ()
    """The kinds of nodes, the most frequent first."""
    away: tuple[AwayHost, ...] = ()
    lists_all_queues: bool = False
    """Whether the machine has no other queues; on PBS, reservations come and go as queues."""
    counts_threads: bool = False
    """Whether the scheduler's cores may be hardware threads, and one of its devices may be several of
    castoff's devices.
    """
    name: str | None = None
    """The machine's name, as the scheduler reports it."""
    version: str | None = None
    """The scheduler's version."""
    user: User | None = None
    """None: not reported."""
    enforces_accounts: bool = False
    """Whether the scheduler refuses jobs of accounts that it does not know."""
    sources: Mapping[str, str] = {}
    """The commands, as a person would type them, that reported queues, qos, nodes and array."""
    fields: Mapping[str, Any] = {}
    """Additional profile fields that the scheduler reports, without source and date."""
    questions: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """What the scheduler leaves open about a profile: each question, and example lines of a profile that
    answer it.
    """
    lacks: tuple[str, ...] = ()
    """Topics of questions about which the machine has no data, so that no answer is expected."""
    unanswered: tuple[tuple[str, str], ...] = ()
    """Topics of questions that were not answered, each with the reason."""


class Difference(NamedTuple):
    """A value that differs between the profile and the scheduler's report, both as text."""

    path: tuple[str, ...]
    """The keys that lead to the value in the profile."""
    profile: str
    source: str | None
    """The source that the profile cites for the value."""
    date: str | None
    scheduler: str

    @property
    def field(self) -> str:
        """The value's path, as messages write it."""
        return ".".join(self.path)


_ALIKE = 0.03
"""The relative difference of memory up to which nodes count as the same kind."""


class Machine(NamedTuple):
    """How to query a scheduler about its machine."""

    questions: Sequence[Question]
    parse: Callable[[Mapping[str, str]], MachineInfo]
    """Parses the answers, each under its question's `about`. If an answer cannot be parsed, `parse` raises
    ValueError or another built-in error.
    """


def same_memory(one: int | None, other: int | None) -> bool:
    """Whether nodes with these memory sizes may be of one kind; an unknown size matches any size."""
    return one is None or other is None or abs(one - other) <= _ALIKE * max(one, other)


def memory_words(mebibytes: int) -> str:
    """Write a memory size in the syntax of job files."""
    return f"{mebibytes // 1024}G" if mebibytes % 1024 == 0 else f"{mebibytes}M"


def kinds(nodes: Iterable[NodeKind]) -> list[NodeKind]:
    """Group nodes that are alike, the most frequent kind first; of equally frequent kinds, the one with more
    devices.

    A kind is in all queues that any of its nodes is in, and has the features that all of its nodes have.
    """
    apart: dict[str, Any] = {"memory": None, "nodes": 0, "queues": (), "features": (), "reserved": 0}
    groups: list[NodeKind] = []
    for node in sorted(nodes, key=lambda one: one.memory or 0):  # so that similar sizes are neighbours
        for position, kind in enumerate(groups):
            alike = kind._replace(**apart) == node._replace(**apart)
            if alike and same_memory(kind.memory, node.memory):
                groups[position] = kind._replace(
                    nodes=kind.nodes + node.nodes,
                    queues=tuple(dict.fromkeys((*kind.queues, *node.queues))),
                    features=tuple(feature for feature in kind.features if feature in node.features),
                    reserved=max(kind.reserved, node.reserved),
                )
                break
        else:
            groups.append(node)
    return sorted(groups, key=lambda one: (-one.nodes, -one.devices))


def outermost(choose: Callable[..., int], bounds: Iterable[int | None]) -> int | None:
    """Return the widest of several bounds, by min or max; None if a bound is None, or there are no bounds."""
    all_bounds = list(bounds)
    return None if None in all_bounds else choose(all_bounds, default=None)
