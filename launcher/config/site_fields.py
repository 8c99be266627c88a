"""The parts of a profile, and the types of its fields."""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from launcher.config.job_fields import Count, CountOrNone, Duration, EnvName, Memory, ShellLine, Text, Word
from launcher.config.quantities import CPULIST_PATTERN, END, cpus
from launcher.typed.structure import takes

CpuList = Annotated[
    str,
    takes(
        "a CPU list, as in 0-51 or 0,52, with numbers up to 9999",
        many="CPU lists, as in 0-51 or 0,52, with numbers up to 9999",
        pattern=CPULIST_PATTERN,
    ),
]
Date = Annotated[str, takes("a date, YYYY-MM-DD", pattern=rf"^[0-9]{{4}}-[01][0-9]-[0-3][0-9]{END}")]

Program = Annotated[
    str,
    # Anything else would be an assignment or a keyword to the shell that starts it.
    takes("a program: its name, or its path from / on", pattern=rf"^(?:/[^\x00\n\r]+|[A-Za-z0-9_.+-]+){END}"),
]

GpuType = Annotated[
    str,
    takes(
        "a type of GPU as Slurm lists it after gpu: (letters, digits, - _ and .)",
        pattern=rf"^[A-Za-z0-9][A-Za-z0-9_.-]*{END}",
    ),
]

RequestForm = Literal["select", "nodes", "ncpus", "totals"]

HostSuffix = Annotated[
    str,
    takes("what ends a host's name, as in .hsn.example.org", pattern=rf"^[A-Za-z0-9._-]*{END}"),
]

_BUILT_IN = Path(__file__).parents[1] / "sites"


class Fact(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Something that somebody else decides: it names its source and the date it was read."""

    source: Text
    """Where this is written."""
    date: Date
    """When it was read there."""

    @property
    def cited(self) -> str:
        """Both, as a message ends."""
        return f"({self.source}, {self.date})"


class Node(Fact, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The topology of one node."""

    sockets: list[CpuList] = []
    """The physical cores of each socket. Without them the scheduler binds ranks to cores, or nobody does."""
    reserved_cores: CpuList | None = None
    """Cores that no rank may use: they are kept for the system."""
    devices: list[CountOrNone] = []
    """How many devices belong to each socket."""
    device_variable: EnvName | None = None
    """The variable that limits a process to some devices, such as CUDA_VISIBLE_DEVICES."""
    device_cores: list[CpuList] = []
    """The physical cores nearest to each device, by the device's number. Without it all cores of a socket
    are alike to its devices."""
    ranks_per_device: Count = 1
    """How many ranks may share a device."""
    cpus_per_core: Count = 1
    """Hardware threads of a physical core that jobs may use, and that Slurm counts in `--cpus-per-task`; all
    first threads are numbered before the second ones. With 2, `binding` may name them, too."""
    exclusive: bool = False
    """Whether a job always has its nodes whole, with all their devices."""
    memory: Memory | None = None
    """Memory of a node."""

    @property
    def device_count(self) -> int:
        """Devices of a node."""
        return sum(self.devices)

    @property
    def cores(self) -> list[int]:
        """The physical cores of all sockets."""
        return sorted(core for socket in self.sockets for core in cpus(socket))

    def cpus_of(self, cores: Sequence[int]) -> list[int]:
        """Physical cores and then their further hardware threads, as Linux numbers them."""
        total = sum(len(cpus(socket)) for socket in self.sockets)
        return [core + total * thread for thread in range(self.cpus_per_core) for core in cores]

    def cores_of(self, numbers: Iterable[int]) -> set[int]:
        """The physical cores of some CPUs, which may be further hardware threads of them."""
        there = {*self.cores}
        return {number if number in there or not there else number % len(there) for number in numbers}

    def usable_cores(self) -> list[list[int]]:
        """The cores of each socket that ranks may use."""
        reserved = set(cpus(self.reserved_cores)) if self.reserved_cores else set()
        return [[core for core in cpus(socket) if core not in reserved] for socket in self.sockets]


class OtherNodes(Fact, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Nodes of another kind than `node`: no job is planned for them, and `castoff sites check` compares "
    "them."""

    cores: Count
    """Physical cores of such a node; on PBS what it counts as `ncpus`."""
    devices: CountOrNone = 0
    """Devices of such a node."""
    device_type: Word | None = None
    """The type of these devices, as the scheduler lists it."""
    memory: Memory | None = None
    """Memory of such a node."""
    queues: list[Word] = []
    """The queues whose jobs may get one; none: any queue's."""


class Range(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Node counts and walltimes that a queue takes together."""

    min_nodes: Count = 1
    """The fewest nodes."""
    max_nodes: Count | None = None
    """The most; left out: any number."""
    min_walltime: Duration | None = None
    """The shortest walltime."""
    max_walltime: Duration | None = None
    """The longest."""


class Queue(Fact, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A queue, a partition or a QOS, and its limits."""

    ranges: list[Range] = []
    """Node counts and walltimes that are accepted together. A job must fit one of them; none means no
    limit."""
    max_jobs: Count | None = None
    """How many jobs of one user may be queued or running."""
    array_max_concurrent: Count | None = None
    """How many members of an array may run at a time; a job with a larger array must set
    `array.max_concurrent`."""
    max_devices: Count | None = None
    """How many devices of a node a job may have. Where this is set, jobs share nodes."""
    listed_as: Word | None = None
    """The name under which the scheduler lists it, where users write another."""
    submit_to: Word | None = None
    """The queue to name instead, where this one accepts no jobs itself."""


class Required(Fact, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A field without which the scheduler refuses a job, or makes of it what nobody meant."""

    field: Word
    """The job file's field: `account`, `directives.filesystems`, …"""
    because: Text
    """What the scheduler says, or why it is needed."""
    example: Text
    """A value to write there."""


class Values(Fact, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a directive may say."""

    among: list[Word]
    """The values that there are."""
    separator: Word | None = None
    """What joins several of them, where one job may name several."""

    def wrong(self, value: str) -> list[str]:
        """The parts of a value that there are not."""
        parts = value.split(self.separator) if self.separator else [value]
        return [part for part in parts if part not in self.among]


class ArrayLimit(Fact, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The largest array."""

    max_count: Count
    """How many members it may have."""


class Option(Fact, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What some jobs want of a site, and ask for by its name: it adds to the fields of the same names."""

    description: Text
    """What it is for, in one line."""
    setup: list[ShellLine] = []
    """Shell lines before those of the job."""
    setup_last: list[ShellLine] = []
    """Shell lines after those of the job."""
    teardown: list[ShellLine] = []
    """Shell lines after the ranks have ended."""
    env: dict[EnvName, Text] = {}
    """Variables, where the job itself does not set them."""
    launcher_args: list[Word] = []
    """Further flags of the launcher."""
    reserved_cores: CpuList | None = None
    """Cores that no rank may use then."""
    gpu_type: GpuType | None = None
    """The type of GPU that Slurm is asked for then."""
    ranks_per_node: Count | None = None
    """The number of ranks on a node that it is made for, and that jobs get which say nothing."""
