"""The parts of a profile, and the types of its fields."""

# No `from __future__ import annotations`: msgspec would compile each annotation at every start.

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from castoff.launcher.config.job_fields import (
    Count,
    CountOrNone,
    DirectiveName,
    Duration,
    EnvName,
    Memory,
    ShellLine,
    Text,
    Word,
)
from castoff.launcher.config.quantities import CPULIST_PATTERN, END, cpus
from castoff.launcher.typed.structure import takes

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
    # The shell that starts it could take other text for an assignment or a keyword.
    takes("a program: its name, or its path from / on", pattern=rf"^(?:/[^\x00\n\r]+|[A-Za-z0-9_.+-]+){END}"),
]

RequestForm = Literal["select", "nodes", "ncpus", "totals"]

HostSuffix = Annotated[
    str,
    takes("the end of a host's name, as in .hsn.example.org", pattern=rf"^[A-Za-z0-9._-]*{END}"),
]

_BUILT_IN = Path(__file__).parents[1] / "sites"


class Fact(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A fact about a site, with its source and the date when the source was read."""

    source: Text = ""
    """The source of this information, such as a page; castoff's own profiles always have it."""
    date: Date = ""
    """When the source was read."""

    @property
    def cited(self) -> str:
        """The source and the date in parentheses, for the end of a message."""
        return f"({', '.join(filter(None, (self.source, self.date))) or 'its profile'})"


class Node(Fact, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The topology of one node."""

    sockets: list[CpuList] = []
    """The physical cores of each socket. Without them, castoff leaves ranks' cores to the launcher."""
    reserved_cores: CpuList | None = None
    """Cores that no rank may use, since they are reserved for the system."""
    devices: list[CountOrNone] = []
    """The number of devices of each socket."""
    device_variable: EnvName | None = None
    """The variable by which a process sees only some devices, such as CUDA_VISIBLE_DEVICES."""
    device_names: list[Word] = []
    """The devices' names in that variable, such as 0.0 and 0.1 for the tiles of one GPU; default: their
    numbers. With names, each rank sees only its own devices.
    """
    device_cores: list[CpuList] = []
    """The physical cores nearest to each device, by the device's number. Without it, all cores of a socket
    count as equally near."""
    ranks_per_device: Count = 1
    """How many ranks may share a device."""
    cpus_per_core: Count = 1
    """Hardware threads of a physical core that jobs may use and that Slurm counts in `--cpus-per-task`. All
    first threads have lower numbers than the second ones. `binding` may then name them."""
    exclusive: bool = False
    """Whether a job always gets whole nodes, with all their devices."""
    memory: Memory | None = None
    """Memory of a node."""

    @property
    def device_count(self) -> int:
        """The number of devices of a node."""
        return sum(self.devices)

    @property
    def cores(self) -> list[int]:
        """The physical cores of all sockets."""
        return sorted(core for socket in self.sockets for core in cpus(socket))

    def cpus_of(self, cores: Sequence[int]) -> list[int]:
        """CPUs in Linux's numbering: physical cores, then their further hardware threads."""
        total = sum(len(cpus(socket)) for socket in self.sockets)
        return [core + total * thread for thread in range(self.cpus_per_core) for core in cores]

    def cores_of(self, numbers: Iterable[int]) -> set[int]:
        """The physical cores of CPUs, which may be hardware threads."""
        cores = {*self.cores}
        return {number if number in cores or not cores else number % len(cores) for number in numbers}

    def usable_cores(self) -> list[list[int]]:
        """The cores of each socket that ranks may use."""
        reserved = set(cpus(self.reserved_cores)) if self.reserved_cores else set()
        return [[core for core in cpus(socket) if core not in reserved] for socket in self.sockets]


class OtherNodes(Fact, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Nodes of another kind than `node`: castoff plans no jobs for them, but `castoff sites check` compares
    them with the scheduler's.
    """

    cores: Count
    """Physical cores of such a node; on PBS, its `ncpus`."""
    devices: CountOrNone = 0
    """Devices of such a node."""
    device_type: Word | None = None
    """The type of these devices, as the scheduler lists it."""
    memory: Memory | None = None
    """Memory of such a node."""
    queues: list[Word] = []
    """The queues whose jobs may get such a node; if empty, all."""


class Range(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A range of node counts and of walltimes that a queue accepts together."""

    min_nodes: Count = 1
    """The fewest nodes."""
    max_nodes: Count | None = None
    """The most nodes; if left out, any number."""
    min_walltime: Duration | None = None
    """The shortest walltime."""
    max_walltime: Duration | None = None
    """The longest walltime."""


def alternatives(counts: Sequence[int]) -> str:
    """Numbers as alternatives in words: `1, 2 or 4`."""
    *others, last = map(str, counts)
    return f"{', '.join(others)} or {last}" if others else last


class Queue(Fact, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A queue, a partition or a QOS, and its limits."""

    ranges: list[Range] = []
    """Ranges of node counts and walltimes. A job must fit one of them; if empty, there is no limit."""
    max_jobs: Count | None = None
    """How many jobs a user may have queued or running."""
    array_max_concurrent: Count | None = None
    """How many members of an array may run at a time. A larger array must set `array.max_concurrent`."""
    max_devices: Count | None = None
    """How many devices of a node a job may have. If set, jobs share nodes."""
    device_counts: list[Count] = []
    """Instead of `max_devices`: the numbers of devices that a job may have, such as [1, 2, 4, 8]."""
    select_counts: Literal["nodes", "devices"] = "nodes"
    """What PBS's `select` counts: nodes, or devices of one node, each with its share of cores and memory."""
    exclusive: bool = False
    """Whether its jobs get whole nodes, if `node.exclusive` is false."""
    listed_as: Word | None = None
    """The name under which the scheduler lists it, if users write another."""
    submit_to: Word | None = None
    """The queue to use instead, if this one accepts no jobs itself."""
    by_request: bool = False
    """Whether the site opens it only on request; castoff then never suggests it."""

    @property
    def most_devices(self) -> int:
        """The largest number of devices of a node that a job may have; 0 if jobs do not share nodes."""
        return self.max_devices or max(self.device_counts, default=0)

    def takes_devices(self, count: int) -> bool:
        """Whether a job may have so many devices of a shared node."""
        return count in self.device_counts if self.device_counts else count <= self.most_devices

    @property
    def devices_words(self) -> str:
        """The allowed numbers of devices in words: `2`, or `1, 2, 4 or 8`."""
        return alternatives(self.device_counts or [self.most_devices])


class Required(Fact, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A field without which the scheduler refuses a job or changes its meaning."""

    field: Word
    """The job file's field: `account`, `directives.filesystems`, …"""
    because: Text
    """The scheduler's message, or why the field is needed."""
    example: Text
    """What to write in the job file."""


class Values(Fact, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The values that a directive may have."""

    among: list[Word]
    """The allowed values."""
    separator: Word | None = None
    """The separator between values, if a job may name several."""

    def wrong(self, value: str) -> list[str]:
        """The parts of a value that are not allowed."""
        parts = value.split(self.separator) if self.separator else [value]
        return [part for part in parts if part not in self.among]


class ArrayLimit(Fact, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The largest array."""

    max_count: Count
    """The most members."""


class Option(Fact, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of a site that a job requests by name; they add to the site's fields of the same names."""

    description: Text
    """What it is for, in one line."""
    setup: list[ShellLine] = []
    """Shell lines before those of the job."""
    setup_last: list[ShellLine] = []
    """Shell lines after those of the job."""
    teardown: list[ShellLine] = []
    """Shell lines after the ranks have ended."""
    env: dict[EnvName, Text] = {}
    """Variables that are set like those of the job, after `setup`, unless the job sets them itself."""
    launcher_args: list[Word] = []
    """More flags for the launcher."""
    reserved_cores: CpuList | None = None
    """Cores that no rank may use with this option."""
    ranks_per_node: Count | None = None
    """The number of ranks on a node that the option needs, and the default of jobs that use it."""
    device_names: list[Word] = []
    """`node.device_names` of jobs that use it."""
    excludes: list[Word] = []
    """Options that contradict it."""


class Need(Fact, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Features that need an option: castoff refuses a job that uses them without one of `options`."""

    options: list[Word]
    """The options. An option counts as used also if the job sets its launcher_args itself."""
    because: Text
    """What happens otherwise."""
    programs: list[Word] = []
    """Programs in a job's command, by name."""
    launcher_args: list[Word] = []
    """Flags in a job's `launcher.args`, without values."""
    env: dict[EnvName, Text] = {}
    """Variables that the job or a line of its setup sets to these values."""
    directives: dict[DirectiveName, list[Word]] = {}
    """Values that are parts of directives, by the directive's name."""
