"""What a scheduler reports about its machine, in the same form for every scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

USER = "<user>"
"""In a question's words: the name of whoever asks."""


class Question(NamedTuple):
    """A command whose answer describes the machine."""

    about: str
    argv: list[str]
    optional: bool = False
    """Whether the machine may lack what is asked for, such as accounting."""


class QueueInfo(NamedTuple):
    """A queue, a partition or a QOS, at its outermost; None where the scheduler names no bound."""

    min_nodes: int | None = 1
    max_nodes: int | None = None
    min_walltime: int | None = None
    """Seconds."""
    max_walltime: int | None = None
    max_jobs: int | None = None
    """Queued and running jobs of one user, or of one project where that is less."""
    max_devices: int | None = None
    """Devices of a job that has one node at the most; of others nobody says how many of them a node has."""
    offered: bool = True
    """Whether users are meant to name it: not where it is hidden, shut or filled by a routing queue."""
    routes_to: tuple[str, ...] = ()
    """The queues that it hands its jobs to, of which users do not name one."""
    passing: bool = False
    """Whether it goes when a reservation ends."""
    accepts_jobs: bool = True
    """Whether it takes submissions now."""
    starts_jobs: bool = True
    """Whether jobs that wait in it are started now."""
    accounts: tuple[str, ...] = ()
    """Those whose jobs alone it takes; none: any account's."""
    notes: tuple[str, ...] = ()
    """Who may use it and what else a person should know, each in words."""


class NodeKind(NamedTuple):
    """Nodes that are alike; None where the scheduler does not say."""

    cores: int
    """Physical cores, unless the scheduler `counts_threads`."""
    devices: int = 0
    device_type: str | None = None
    memory: int | None = None
    """MiB; of the node that has the least."""
    nodes: int = 1
    """How many there are."""
    sockets: int | None = None
    cpus_per_core: int = 1
    device_sockets: tuple[int, ...] = ()
    """The sockets that its devices belong to."""
    features: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    """Those whose jobs may get such a node; none: any queue's."""
    whole: bool = False
    """Whether a job always gets all of such a node."""
    reserved: int = 0
    """Cores of each that no job gets."""

    def words(self, plain: str = "cores") -> str:
        """Describe one node of this kind: cores, devices and memory; `plain`: the word for its cores."""
        said = f"{self.cores} {plain}, " + (
            f"{self.devices} {self.device_type or 'devices'}" if self.devices else "no devices"
        )
        return said if self.memory is None else f"{said}, {memory_words(self.memory)}"


class AwayHost(NamedTuple):
    """A host that gets no jobs now: it is drained or down."""

    name: str
    state: str
    """In the scheduler's words."""
    reason: str = ""
    """In an administrator's words; empty where nobody gave one."""
    queues: tuple[str, ...] = ()
    """Those whose jobs it would get; none: any queue's."""


class User(NamedTuple):
    """What the scheduler's accounting knows of whoever asks."""

    accounts: tuple[str, ...] = ()
    default_account: str | None = None
    qos: tuple[str, ...] = ()
    default_qos: str | None = None


class MachineInfo(NamedTuple):
    """Everything that a scheduler reports about its machine."""

    queues: Mapping[str, QueueInfo] = {}
    qos: Mapping[str, QueueInfo] | None = None
    """None where there is no accounting, or no such thing."""
    default_queue: str | None = None
    array_count: int | None = None
    """Members of the largest array."""
    nodes: Sequence[NodeKind] = ()
    """The kinds of nodes, the most frequent first."""
    away: tuple[AwayHost, ...] = ()
    lists_all_queues: bool = False
    """Whether there are no queues but these; at PBS reservations come and go as queues."""
    counts_threads: bool = False
    """Whether those cores may be hardware threads, and those devices several of ours."""
    name: str | None = None
    """What the machine calls itself."""
    version: str | None = None
    """The scheduler's."""
    user: User | None = None
    """None: nobody says."""
    enforces_accounts: bool = False
    """Whether it refuses a job of an account that it does not know."""
    sources: Mapping[str, str] = {}
    """Where queues, qos, nodes and array are from: the command that a person would type."""
    fields: Mapping[str, Any] = {}
    """Further fields of a profile that the scheduler tells, without source and date."""
    questions: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """What it leaves open about these fields or other ones: each question, and lines of a profile that would
    be its answer."""
    lacks: tuple[str, ...] = ()
    """What was asked about and is known not to be there, so that no answer is an answer."""
    unanswered: tuple[tuple[str, str], ...] = ()
    """What was asked about and not answered, each with why."""


class Difference(NamedTuple):
    """A value of the profile that the scheduler reports otherwise, both in words."""

    path: tuple[str, ...]
    """The names that lead to the value in the profile."""
    profile: str
    source: str | None
    """The source that the profile cites."""
    date: str | None
    scheduler: str

    @property
    def field(self) -> str:
        """The path, as messages write it."""
        return ".".join(self.path)


_ALIKE = 0.03
"""By how much nodes of one kind may differ in the memory that they report."""


class Machine(NamedTuple):
    """How a scheduler is asked about its machine."""

    questions: Sequence[Question]
    parse: Callable[[Mapping[str, str]], MachineInfo]
    """What the answers say, each under its question's `about`. For an answer that it cannot read it raises
    ValueError or another error of Python's own."""


def same_memory(one: int | None, other: int | None) -> bool:
    """Whether two sizes are one and the same kind's; what is unknown is like anything."""
    return one is None or other is None or abs(one - other) <= _ALIKE * max(one, other)


def memory_words(mebibytes: int) -> str:
    """A memory size as job files have it."""
    return f"{mebibytes // 1024}G" if mebibytes % 1024 == 0 else f"{mebibytes}M"


def kinds(nodes: Iterable[NodeKind]) -> list[NodeKind]:
    """Those that are alike together, the most frequent first, and of two the one with more devices.

    A kind is in all queues that have some of it, and has the features that all of it have.
    """
    apart: dict[str, Any] = {"memory": None, "nodes": 0, "queues": (), "features": (), "reserved": 0}
    found: list[NodeKind] = []
    for node in sorted(nodes, key=lambda one: one.memory or 0):  # so that near sizes meet
        for at, kind in enumerate(found):
            alike = kind._replace(**apart) == node._replace(**apart)
            if alike and same_memory(kind.memory, node.memory):
                found[at] = kind._replace(
                    nodes=kind.nodes + node.nodes,
                    queues=tuple(dict.fromkeys((*kind.queues, *node.queues))),
                    features=tuple(feature for feature in kind.features if feature in node.features),
                    reserved=max(kind.reserved, node.reserved),
                )
                break
        else:
            found.append(node)
    return sorted(found, key=lambda one: (-one.nodes, -one.devices))


def outermost(choose: Callable[..., int], bounds: Iterable[int | None]) -> int | None:
    """Of several bounds the one that takes most, by min or max; None: there is none."""
    held = list(bounds)
    return None if None in held else choose(held, default=None)
