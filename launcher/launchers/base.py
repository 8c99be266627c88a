"""What castoff asks of a launcher: one class for each, in `commands`.

All that differs between launchers before a job runs is in their classes: whoever needs it asks the `Launcher`
of that name, and never compares the name. Under torchrun the launcher starts one process per node.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

import msgspec

from castoff.launcher.config.chunks import NodeGroup
from castoff.launcher.config.job_fields import OwnDistribution
from castoff.launcher.config.site import Site


class Layout(msgspec.Struct, frozen=True):
    """Processes on nodes, block by block."""

    groups: list[tuple[int, int]]
    """(processes on a node, how many such nodes in a row), in node order."""

    @classmethod
    def of(cls, processes: int, nodes: int) -> Layout:
        """The most even layout: nodes differ by at most one process, the fuller ones first."""
        few, fuller = divmod(processes, nodes)
        groups = [(few + 1, fuller), (few, nodes - fuller)]
        return cls([(count, times) for count, times in groups if times])

    @classmethod
    def joined(cls, groups: Iterable[tuple[int, int]]) -> Layout:
        """The layout of groups in node order; neighbours with the same number are joined."""
        together: list[tuple[int, int]] = []
        for count, times in groups:
            if together and together[-1][0] == count:
                times += together.pop()[1]
            together.append((count, times))
        return cls(together)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return sum(times for _, times in self.groups)

    @property
    def processes(self) -> int:
        """Number of processes."""
        return sum(count * times for count, times in self.groups)

    @property
    def max_per_node(self) -> int:
        """Number of processes on the fullest node."""
        return max(count for count, _ in self.groups)

    @property
    def is_uniform(self) -> bool:
        """Whether every node has the same number."""
        return len(self.groups) == 1

    @property
    def block_filled(self) -> bool:
        """Whether filling one node after the other gives this layout, as `mpiexec --ppn` does."""
        if self.is_uniform:
            return True
        (fullest, _), (last, times), *others = self.groups
        return not others and times == 1 and last < fullest

    @property
    def is_even(self) -> bool:
        """Whether nodes differ by at most one process, the fuller ones first, as in `of`."""
        first, last = self.groups[0][0], self.groups[-1][0]
        return self.is_uniform or (len(self.groups) == 2 and last == first - 1)


class Request(msgspec.Struct, frozen=True):
    """What the scheduler and the launcher are asked for."""

    layout: Layout
    cores: int | None
    """Cores of each process, if they were asked for or are known."""
    cpu_lists: list[str]
    """The CPU list of each process of a node; empty if Slurm binds the processes or nobody does."""
    devices: int
    """Devices of each process."""
    node_devices: int
    """Devices of each node that the job has: all of them if it has the whole node."""
    site: Site
    own_distribution: OwnDistribution | None = None
    """Whether the job's own srun flags say where each process starts."""
    by_list: bool = False
    """Whether a launcher that binds by its own rules has to bind each process to its CPU list."""
    whole_nodes: bool = False
    """Whether the job has whole nodes, with all their devices."""
    name: str = ""
    walltime: int | None = None
    """The walltime in seconds."""
    grace: int = 0
    """The grace period in seconds."""
    device_queue: str | None = None
    """The queue, if a scheduler that is asked for chunks gives one device per chunk there."""
    spare_nodes: int = 0
    """Nodes beyond those of the layout, which replace hosts that fail."""
    node_groups: Sequence[NodeGroup] = ()
    """The groups of `select`, if their chunks differ; each is complete in itself."""
    after: str | None = None
    """A dependency of scheduler ids only, in the scheduler's words."""
    device_type: str | None = None
    """The type of the devices, if only one of several types will do."""

    @property
    def any_devices(self) -> bool:
        """Whether it asks for devices on any node."""
        return bool(self.node_devices) or any(group.devices_per_node for group in self.node_groups)

    def gpus(self, count: int) -> str:
        """The number of devices in the form in which Slurm is asked for them."""
        return f"{self.device_type}:{count}" if self.device_type else str(count)


class Launcher(ABC):
    """A launcher: its command line, and what the job script has to do around it."""

    reports_node: ClassVar[bool] = False
    """Whether a rank gets its node's number; otherwise one node is filled after the other."""
    survives_rank_failure: ClassVar[bool] = False
    """Whether the other ranks continue when one exits with an error."""
    ends_by_usr1: ClassVar[bool] = False
    """Whether it passes USR1 on, and kills its ranks at TERM: srun (22.05.8) at once, Open MPI soon."""
    is_mpiexec: ClassVar[bool] = False
    """Whether another mpiexec may have the same name."""
    says: ClassVar[str | None] = None
    """A pattern in the output of its `mpiexec --version` that no other mpiexec prints."""
    reaches_by_ssh: ClassVar[bool] = False
    """Whether it starts ranks on other hosts by ssh, unless its environment names another way."""
    here: ClassVar[bool] = False
    """Whether it is castoff itself, on this host: it sets each rank's variables, and shows its lines."""
    bind_flags: ClassVar[tuple[str, ...]] = ()
    """Its own flags that bind processes to cores."""
    takes_lists: ClassVar[bool] = False
    """Whether it takes a list of cores for each process."""
    bound_by_list: ClassVar[bool] = False
    """Whether castoff binds its processes by such lists, unless the user or the site does."""
    leaves_unbound: ClassVar[bool] = False
    """Whether processes may run anywhere on their host unless castoff binds them."""
    mpi_modules: ClassVar[str] = ""
    """A pattern for the names of modules of the MPI whose ranks it connects; empty: of any MPI."""
    comes_with_mpi: ClassVar[bool] = True
    """Whether it comes with the modules of that MPI; otherwise it is the system's."""
    pmix_flag: ClassVar[str] = ""
    """The flag by which it offers PMIx to the ranks; empty: it needs none."""
    pmix_modules: ClassVar[str] = ""
    """A pattern for the modules of the MPI whose ranks need that flag, as in `mpi_modules`."""
    bound_by_script: ClassVar[bool] = False
    """Whether the script binds each rank, because no flag does so in all of the launcher's versions."""
    most_words: ClassVar[int | None] = None
    """The largest number of words in a command; None: no limit."""
    fills_in: ClassVar[bool] = False
    """Whether it replaces `{{…}}` in a word."""
    cancels_on_int: ClassVar[bool] = False
    """Whether two INTs, rather than TERM, make it end ranks that ignore TERM."""
    fills_nodes: ClassVar[bool] = False
    """Whether it can only fill one node after the other, so that the last ones may have fewer processes."""
    runs_containers: ClassVar[bool] = False
    """Whether it can start each process in a container by itself (pyxis)."""

    @abstractmethod
    def argv(self, request: Request) -> list[str]:
        """Its command line, up to the program."""

    def start(self, request: Request, of_site: list[str], of_job: list[str]) -> list[str]:
        """Its command line with the further flags of the site and the job, of which only one binds."""
        argv = self.argv(request)
        if self.binds(of_job):
            argv, of_site = without(self.bind_flags, argv), without(self.bind_flags, of_site)
        elif request.by_list:
            of_site = without(self.bind_flags, of_site)
        elif self.binds(of_site):
            argv = without(self.bind_flags, argv)
        return [*argv, *of_site, *of_job]

    def beside(self, request: Request, of_site: list[str]) -> list[str]:
        """Its command line for processes that run beside the ranks, on the same CPUs and devices."""
        return [*self.argv(request), *without(self.bind_flags, of_site)]

    def binds(self, words: Sequence[str]) -> bool:
        """Whether flags for it say how processes are bound to cores."""
        return any(word.partition("=")[0] in self.bind_flags for word in words)

    def binding(self, words: Sequence[str]) -> str:
        """The value of the flag that binds, without words about how much it prints."""
        found = value_of(self.bind_flags, words) or ""
        return ",".join(part for part in found.split(",") if part not in ("verbose", "quiet", "v", "q"))

    def bound(self, words: Sequence[str], ranks: int, usable: Sequence[int]) -> list[list[int]] | None:
        """The CPUs of each local rank by flags that bind; None if only the launcher knows them.

        `usable`: the physical cores of a node that ranks may have.

        Raises:
            ValueError: that cannot be; the text, read after what the flags say, begins with `which`.
        """
        kind, _, listed = self.binding(words).partition(":")
        return (
            [[*usable]] * ranks
            if kind in ("none", "no", "")
            else self._bound(kind, listed, words, ranks, usable)
        )

    def _bound(
        self, kind: str, listed: str, words: Sequence[str], ranks: int, usable: Sequence[int]
    ) -> list[list[int]] | None:
        return None

    def own_distribution(self, words: Sequence[str], named: Mapping[str, object]) -> OwnDistribution | None:
        """Whether flags, or else directives by their names, say where each process starts."""
        return None

    def deals_over_sockets(self, words: Sequence[str], named: Mapping[str, object]) -> bool:
        """Whether these flags and directives have it deal a node's processes out over the sockets in turn."""
        return False

    def shows_devices(self, words: Sequence[str]) -> str | None:
        """The rule by which flags show each rank some GPUs only, such as `closest` or `map_gpu:0,1`.

        `none`: it shows each all of them. None: they say nothing of it.
        """
        return None

    def shown_devices(self, rule: str, ranks: int) -> list[list[int]] | None:
        """The GPUs that such a rule names for each local rank; None if it names none."""
        return None

    def each_host(self, site: Site, of_site: list[str]) -> list[str]:
        """The command line that starts one process on each of some hosts, whatever else runs there.

        Their number and the file that holds them are added in the job.
        """
        return [site.mpiexec, *of_site]

    def heeds_cpus(self, argv: Sequence[str]) -> bool:
        """Whether it refuses more processes on a host of an allocation than it has CPUs there."""
        return False

    def only_on(self, hosts: Sequence[str]) -> list[str]:
        """The flags that keep it on these hosts of an allocation, if it would otherwise choose any."""
        return []


def without(names: Sequence[str], words: Sequence[str]) -> list[str]:
    """The words of a command line without these flags."""
    left, after = [], False
    for word in words:
        if not after and word.partition("=")[0] not in names:
            left.append(word)
        after = not after and word in names  # its value is a word of its own
    return left


def value_of(names: Sequence[str], words: Sequence[str]) -> str | None:
    """The value of the last one of these flags."""
    found = None
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in names:
            found = value if equals else next(iter(words[at + 1 :]), "")
    return found
