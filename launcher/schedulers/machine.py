"""What a scheduler says about its machine, in words that belong to no scheduler."""

from __future__ import annotations

from typing import NamedTuple


class Question(NamedTuple):
    """A command whose answer tells something about the machine."""

    about: str
    argv: list[str]
    optional: bool = False
    """Whether the machine may lack what is asked for, such as accounting."""


class Bounds(NamedTuple):
    """Node counts and walltimes (seconds) that are taken together; None where the scheduler names none."""

    min_nodes: int | None = None
    max_nodes: int | None = None
    min_walltime: int | None = None
    max_walltime: int | None = None


class ToldQueue(NamedTuple):
    """A queue, a partition or a QOS."""

    bounds: Bounds
    source: str
    """The command that shows it."""
    max_jobs: int | None = None
    """Queued and running jobs of one user, or of one project where that is less."""
    max_devices: int | None = None
    """Devices of a job."""
    routes_to: tuple[str, ...] = ()
    """The queues that a routing queue hands its jobs to."""
    offered: bool = True
    """Whether users are meant to name it: not where it is hidden, shut or filled by a routing queue."""


class NodeKind(NamedTuple):
    """Nodes that are alike."""

    number: int
    cores: int | None
    """Physical cores, where they are told."""
    cpus: int | None
    """What the scheduler counts instead: it may be hardware threads."""
    devices: int


class Told(NamedTuple):
    """Everything that was told."""

    scheduler: str
    """Its name for people: Slurm or PBS."""
    queues: dict[str, ToldQueue]
    qos: dict[str, ToldQueue] | None
    """None where there is no accounting, or no such thing."""
    default_queue: str | None
    array_count: int | None
    """Members of the largest array."""
    array_source: str
    nodes: list[NodeKind]
    filesystems: list[str]
    submit_filter: str | None = None
    """A plugin that may refuse jobs by rules of its own."""
    unanswered: tuple[tuple[str, str], ...] = ()
    """What was asked about and not answered, each with why."""
