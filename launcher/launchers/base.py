"""What castoff needs from a launcher: the base class of the launchers in `commands`.

Whatever differs between launchers before a job runs is in their classes: other code looks up the `Launcher`
by its name, and never compares names. Under torchrun, the launcher starts one process per node.
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
    """The number of processes on each node; processes are numbered node by node."""

    groups: list[tuple[int, int]]
    """In node order: (processes per node, number of consecutive nodes with that number of processes)."""

    @classmethod
    def of(cls, processes: int, nodes: int) -> Layout:
        """Return the most even layout: nodes differ by at most one process, and nodes with more processes
        come first.
        """
        few, fuller = divmod(processes, nodes)
        groups = [(few + 1, fuller), (few, nodes - fuller)]
        return cls([(count, times) for count, times in groups if times])

    @classmethod
    def joined(cls, groups: Iterable[tuple[int, int]]) -> Layout:
        """Return the layout of groups in node order; neighbouring groups with the same number of processes
        are joined.
        """
        together: list[tuple[int, int]] = []
        for count, times in groups:
            if together and together[-1][0] == count:
                times += together.pop()[1]
            together.append((count, times))
        return cls(together)

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return sum(times for _, times in self.groups)

    @property
    def processes(self) -> int:
        """The number of processes."""
        return sum(count * times for count, times in self.groups)

    @property
    def max_per_node(self) -> int:
        """The number of processes on the node that has the most."""
        return max(count for count, _ in self.groups)

    @property
    def is_uniform(self) -> bool:
        """Whether every node has the same number of processes."""
        return len(self.groups) == 1

    @property
    def block_filled(self) -> bool:
        """Whether filling one node after the other, as `mpiexec --ppn` does, gives this layout."""
        if self.is_uniform:
            return True
        (fullest, _), (last, times), *others = self.groups
        return not others and times == 1 and last < fullest

    @property
    def is_even(self) -> bool:
        """Whether nodes differ by at most one process, with fuller nodes first, as in `of`."""
        first, last = self.groups[0][0], self.groups[-1][0]
        return self.is_uniform or (len(self.groups) == 2 and last == first - 1)


class Request(msgspec.Struct, frozen=True):
    """What a job requests from the scheduler and the launcher."""

    layout: Layout
    cores: int | None
    """The number of cores of each process, if the cores are requested or known."""
    cpu_lists: list[str]
    """The CPU list of each process on a node; empty if Slurm binds the processes, or nothing does."""
    devices: int
    """The number of devices of each process."""
    node_devices: int
    """The number of the job's devices on each node: all of the node's devices if the job has the
    whole node.
    """
    site: Site
    own_distribution: OwnDistribution | None = None
    """How the job's own srun flags place the processes; None: no flag places them."""
    by_list: bool = False
    """Whether a launcher with its own rules of binding must bind each process to its CPU list."""
    whole_nodes: bool = False
    """Whether the job has whole nodes, with all their devices."""
    name: str = ""
    walltime: int | None = None
    """The walltime in seconds."""
    grace: int = 0
    """The grace period in seconds."""
    device_queue: str | None = None
    """The queue, if each chunk in it is one device."""
    spare_nodes: int = 0
    """The number of additional nodes, which replace hosts that fail."""
    outlives_hosts: bool = False
    """Whether the job is to continue when it loses a host."""
    node_groups: Sequence[NodeGroup] = ()
    """The groups of `select`, if their chunks differ; each group has all of its values."""
    after: str | None = None
    """A dependency on job ids only, in the scheduler's syntax."""
    device_type: str | None = None
    """The type of the devices, if the job needs a particular one."""

    @property
    def any_devices(self) -> bool:
        """Whether the job requests devices on any node."""
        return bool(self.node_devices) or any(group.devices_per_node for group in self.node_groups)

    def gpus(self, count: int) -> str:
        """Write a number of devices as Slurm takes it."""
        return f"{self.device_type}:{count}" if self.device_type else str(count)


class Launcher(ABC):
    """A launcher: its command line, and what the job script must do for it."""

    reports_node: ClassVar[bool] = False
    """Whether the launcher reports the node's number to each rank; if not, castoff assumes that it fills node
    after node.
    """
    survives_rank_failure: ClassVar[bool] = False
    """Whether the other ranks continue when one exits with an error."""
    ends_by_usr1: ClassVar[bool] = False
    """Whether the launcher forwards USR1, and kills the ranks on TERM: srun (22.05.8) at once, Open
    MPI soon.
    """
    is_mpiexec: ClassVar[bool] = False
    """Whether the launcher's command is called mpiexec, like that of other launchers."""
    says: ClassVar[str | None] = None
    """A pattern in the output of the launcher's `mpiexec --version` that no other mpiexec prints."""
    reaches_by_ssh: ClassVar[bool] = False
    """Whether the launcher starts ranks on other hosts by ssh, unless its environment names another way."""
    here: ClassVar[bool] = False
    """Whether the launcher is castoff's own, which sets each rank's variables and shows its output."""
    bind_flags: ClassVar[tuple[str, ...]] = ()
    """The launcher's flags that bind processes to cores."""
    takes_lists: ClassVar[bool] = False
    """Whether the launcher takes a list of cores for each process."""
    bound_by_list: ClassVar[bool] = False
    """Whether castoff binds the launcher's processes by lists of cores, unless the user or the site binds
    them.
    """
    leaves_unbound: ClassVar[bool] = False
    """Whether processes may run anywhere on their host unless castoff binds them."""
    mpi_modules: ClassVar[str] = ""
    """A pattern for the names of modules of the MPI whose ranks the launcher can connect; empty: any MPI."""
    comes_with_mpi: ClassVar[bool] = True
    """Whether the modules in `mpi_modules` provide the launcher; otherwise the system does."""
    pmix_flag: ClassVar[str] = ""
    """The flag that makes the launcher offer PMIx to the ranks; empty: no flag is needed."""
    pmix_modules: ClassVar[str] = ""
    """A pattern for the names of modules of the MPI whose ranks need `pmix_flag`."""
    bound_by_script: ClassVar[bool] = False
    """Whether the script binds each rank, because no flag does so in all of the launcher's versions."""
    most_words: ClassVar[int | None] = None
    """The largest number of words in a command; None: no limit."""
    fills_in: ClassVar[bool] = False
    """Whether the launcher replaces `{{…}}` in the words of a command."""
    cancels_on_int: ClassVar[bool] = False
    """Whether two INTs, rather than TERM, make the launcher end ranks that ignore TERM."""
    fills_nodes: ClassVar[bool] = False
    """Whether the launcher can only fill one node after the other, so that only the last node may have fewer
    ranks.
    """
    divides: ClassVar[bool] = False
    """Whether the launcher gives each of several programs in one job cores and devices of its own."""
    runs_containers: ClassVar[bool] = False
    """Whether the launcher can start each process in a container by itself (pyxis)."""

    @abstractmethod
    def argv(self, request: Request) -> list[str]:
        """Return the launcher's command line without the program."""

    def start(self, request: Request, of_site: list[str], of_job: list[str]) -> list[str]:
        """Return the command line with the site's and the job's flags; if the job's flags bind, the site's
        binding is dropped.
        """
        argv = self.argv(request)
        if self.binds(of_job):
            argv, of_site = without(self.bind_flags, argv), without(self.bind_flags, of_site)
        elif request.by_list:
            of_site = without(self.bind_flags, of_site)
        elif self.binds(of_site):
            argv = without(self.bind_flags, argv)
        return [*argv, *of_site, *of_job]

    def share(self, request: Request, *, nodes_too: bool) -> list[str]:
        """Return further flags for a program that runs beside others in one job; `nodes_too`: also on its
        nodes, where the script binds its ranks.
        """
        return []

    def beside(self, request: Request, of_site: list[str]) -> list[str]:
        """Return the launcher's command line for processes with the same CPUs and devices as the ranks."""
        return [*self.argv(request), *without(self.bind_flags, of_site)]

    def binds(self, words: Sequence[str]) -> bool:
        """Whether these flags bind processes to cores."""
        return any(word.partition("=")[0] in self.bind_flags for word in words)

    def binding(self, words: Sequence[str]) -> str:
        """Return the value of the flag that binds, without words that make the launcher print the binding."""
        value = value_of(self.bind_flags, words) or ""
        return ",".join(part for part in value.split(",") if part not in ("verbose", "quiet", "v", "q"))

    def bound(self, words: Sequence[str], ranks: int, usable: Sequence[int]) -> list[list[int]] | None:
        """Return the CPUs that flags give each local rank; None if only the launcher knows the CPUs.

        `usable`: the physical cores of a node that ranks may use.

        Raises:
            ValueError: the flags are wrong; the text begins with `which`, to follow the flags in a sentence.
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
        """Return how flags, or else directives of the same names, place the processes; None: neither do."""
        return None

    def deals_over_sockets(self, words: Sequence[str], named: Mapping[str, object]) -> bool:
        """Whether, with these options, the launcher places a node's processes on its sockets in turn."""
        return False

    def shows_devices(self, words: Sequence[str]) -> str | None:
        """Return the rule by which flags show each rank only some GPUs, such as `closest` or `map_gpu:0,1`.

        `none`: each rank sees all GPUs. None: the flags have no such rule.
        """
        return None

    def shown_devices(self, rule: str, ranks: int) -> list[list[int]] | None:
        """Return the GPUs that the rule of `shows_devices` names for each local rank; None if the rule names
        none.
        """
        return None

    def each_host(self, site: Site, of_site: list[str]) -> list[str]:
        """Return the command line that starts one process on each of some hosts, whatever else runs there.

        The script adds the number of hosts and the file that lists them.
        """
        return [site.mpiexec, *of_site]

    def heeds_cpus(self, argv: Sequence[str]) -> bool:
        """Whether the launcher refuses to start more processes on a host than the allocation has CPUs
        there.
        """
        return False

    def only_on(self, hosts: Sequence[str]) -> list[str]:
        """Return the flags that make the launcher use these hosts of an allocation; none if it does so
        without flags.
        """
        return []


def without(names: Sequence[str], words: Sequence[str]) -> list[str]:
    """Return the words of a command line without these flags and their values."""
    kept, is_value = [], False
    for word in words:
        if not is_value and word.partition("=")[0] not in names:
            kept.append(word)
        is_value = not is_value and word in names  # the flag's value is the next word
    return kept


def value_of(names: Sequence[str], words: Sequence[str]) -> str | None:
    """Return the value of the last of these flags."""
    last = None
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in names:
            last = value if equals else next(iter(words[index + 1 :]), "")
    return last
