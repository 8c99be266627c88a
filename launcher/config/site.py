"""Site: what a machine is. Data only, in YAML; each limit says where it comes from and since when."""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec

from launcher.config.checked import Checked, verified
from launcher.config.job import (
    Count,
    CountOrNone,
    DirectiveName,
    Directives,
    Duration,
    EnvName,
    JobSpec,
    LauncherName,
    Memory,
    ShellLine,
    Text,
    Word,
)
from launcher.config.quantities import CPULIST_PATTERN, END, cpus
from launcher.config.site_checks import contradictions
from launcher.errors import CastoffError, InvalidInput, Problem
from launcher.trust.decision import check
from launcher.typed.document import Document, FieldPath, invalid
from launcher.typed.structure import convert, takes
from launcher.typed.suggestion import did_you_mean

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
    """What Slurm counts for one physical core in `--cpus-per-task`: 2 where a CPU is a hardware thread."""
    exclusive: bool = False
    """Whether a job always has its nodes whole, with all their devices."""
    memory: Memory | None = None
    """Memory of a node."""

    @property
    def device_count(self) -> int:
        """Devices of a node."""
        return sum(self.devices)

    def usable_cores(self) -> list[list[int]]:
        """The cores of each socket that ranks may use."""
        reserved = set(cpus(self.reserved_cores)) if self.reserved_cores else set()
        return [[core for core in cpus(socket) if core not in reserved] for socket in self.sockets]


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
    """How many members of an array may run at a time; a job with a larger array must set `array.max_concurrent`."""
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


class Site(Checked, frozen=True, kw_only=True):
    """What a machine is: the fields of a profile. A wrong one raises InvalidInput when it is built.

    docs/sites.md says more of each field.
    """

    name: Word
    """It follows from the file's name."""
    description: Text
    """The machine in one line."""
    scheduler: Word
    """`slurm`, `pbs`, `flux` or `local`."""
    launcher: LauncherName
    """What starts processes inside a job; `flux` is flux run."""
    extends: Word | None = None
    """The profile that this one changes."""
    shell: Word = "/bin/bash"
    """The interpreter in the script's first line."""
    mpiexec: Program = "mpiexec"
    """The mpiexec program, where the launcher is one."""
    launcher_args: list[Word] = []
    """Further flags of the launcher, for every job."""
    master_suffix: HostSuffix = ""
    """What follows the short name of rank 0's host in MASTER_ADDR, such as the domain of the fast
    network. A host that does not resolve that name tries others."""
    node: Node | None = None
    """The topology of one node."""
    queues: dict[Word, Queue] = {}
    """The queues or partitions, by name, with their limits."""
    other_queues: bool = True
    """Whether there may be queues that are not listed."""
    default_queue: Word | None = None
    """The queue of jobs that name none; its limits apply to them."""
    qos: dict[Word, Queue] = {}
    """Slurm's qualities of service, by name, described like queues. A job must fit its queue and its QOS."""
    other_qos: bool = True
    """Whether there may be QOS that are not listed."""
    default_qos: Word | None = None
    """The QOS of jobs that name none."""
    required: list[Required] = []
    """Fields without which the scheduler refuses a job, or misunderstands it."""
    array: ArrayLimit | None = None
    """The largest array."""
    select: list[Literal["ncpus", "mpiprocs", "ngpus", "mem"]] = []
    """What a PBS chunk spells out."""
    gpu_request: Literal["gpus-per-node", "gres", "gpus-per-task"] | None = None
    """How Slurm is asked for devices."""
    gpu_type: GpuType | None = None
    """The type of GPU that Slurm is asked for, where a cluster has several: with `a100`, `gres` becomes
    `--gres=gpu:a100:2` for two devices, and the others `a100:2`."""
    gpu_bind: Word | None = None
    """srun's `--gpu-bind`, for ranks that have devices: `closest`, `none` and others."""
    submit_timeout: Duration = "5m"
    """How long sbatch, qsub or flux batch may take to answer a submission. Then castoff ends it, and asks
    the queue what became of the job."""
    local_storage: Word | None = None
    """A folder on each node's own disk, in which `stage` makes its own; where a user may not write to it,
    a folder in it of the user's name. Default: TMPDIR, else `/tmp`."""
    directives: Directives = {}
    """Directives of every job, as in a job file, and refused as there where a field says the same: that
    belongs under `defaults`."""
    directive_values: dict[DirectiveName, Values] = {}
    """The values that a directive may have, by its name; others are passed on unchecked."""
    env: dict[EnvName, Text] = {}
    """Variables of every job."""
    setup: list[ShellLine] = []
    """Shell lines before those of the job."""
    setup_last: list[ShellLine] = []
    """Shell lines after those of the job."""
    teardown: list[ShellLine] = []
    """Shell lines after the ranks have ended; their exit code is not the job's."""
    options: dict[Word, Option] = {}
    """What some jobs want of the site, and ask for by its name."""
    example_setup: list[ShellLine] = []
    """Shell lines that `castoff init` proposes as a job's setup, such as the modules to load."""
    defaults: JobSpec = JobSpec()
    """Fields of a job file, for jobs that leave them out."""

    @property
    def binds_devices(self) -> bool:
        """Whether srun shows each rank only its own devices, numbered from 0."""
        per_task = "per_task" if self.gpu_request == "gpus-per-task" else "none"  # srun's own choice
        return (self.gpu_bind or per_task) != "none"

    def gpus_asked(self, count: int) -> str:
        """So many devices as Slurm is asked for them: of the site's type, if it has one."""
        return f"{self.gpu_type}:{count}" if self.gpu_type else str(count)

    def cpus_of(self, cores: int | None) -> int | None:
        """Cores in what Slurm counts, as --cpus-per-task does."""
        return cores and cores * (self.node.cpus_per_core if self.node else 1)

    @classmethod
    def load(cls, name: str, *, search: "Search | None" = None) -> "Site":
        """The profile of that name: the project's, else the user's, else the built-in one.

        Raises:
            CastoffError: there is none, or it extends itself in a circle.
            InvalidInput: with every problem that it has.
        """
        document = Document({}, f"site {name}")
        for _, _, layer in reversed(list(_layers(name, search or Search.here()))):
            document.merge(layer)
        document.put(["name"], Document(name, document.origin), document.origin)
        for field in ("queues", "qos", "env", "options", "directive_values"):
            # null takes away what an extended profile has
            held = document.data.get(field)
            if isinstance(held, dict):
                document.data[field] = {key: value for key, value in held.items() if value is not None}
        return verified(document, cls, [], contradictions)

    def _contradictions(self) -> Iterator[tuple[FieldPath, str]]:
        return contradictions(self)


class Search(NamedTuple):
    """Where profiles are looked for, and the environment that chooses one."""

    environ: Mapping[str, str]
    project: Path | None
    """The nearest folder upwards that holds `.castoff/`."""

    @classmethod
    def here(cls) -> "Search":
        """From this process's working directory and environment.

        Raises:
            CastoffError: somebody else could have written what the project's folder holds.
        """
        folder = project_folder()
        if folder is not None:
            check(folder, otherwise="or make this folder its own project: mkdir .castoff")
        return cls(os.environ, folder and folder.parent)

    def profiles(self) -> dict[str, list[tuple[str, Path]]]:
        """Every profile's name with its files, nearest first, each with a word for where it is."""
        home = self.environ.get("HOME", "/nonexistent")
        config = self.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
        folders = [("user", Path(config, "castoff", "sites")), ("built-in", _BUILT_IN)]
        if self.project is not None:
            folders.insert(0, ("project", self.project / ".castoff" / "sites"))
        found: dict[str, list[tuple[str, Path]]] = {}
        for kind, folder in folders:
            for path in sorted(folder.glob("*.yaml")) if folder.is_dir() else []:
                found.setdefault(path.stem, []).append((kind, path))
        return dict(sorted(found.items()))


def project_folder() -> Path | None:
    """The `.castoff/` of the working directory or the nearest folder above it, whoever made it."""
    here = Path.cwd()
    found = (at / ".castoff" for at in (here, *here.parents))
    return next((folder for folder in found if folder.is_dir()), None)


def project_profiles(name: str, search: Search) -> list[Path]:
    """The files of the project that the profile of that name is made of."""
    return [path for kind, path, _ in _layers(name, search) if kind == "project"]


def _layers(name: str, search: Search) -> Iterator[tuple[str, Path, Document]]:
    """The profile's documents, the profile itself first, then what each extends; where each is, and whose."""
    seen: set[Path] = set()
    profiles = search.profiles()
    asked_by = ""
    while True:
        kind, found = next((one for one in profiles.get(name, []) if one[1] not in seen), ("", None))
        if found is None and name in profiles:
            raise CastoffError(f"{asked_by}site {name}: extends itself in a circle; drop one `extends:`")
        if found is None:
            others = [other for other in profiles if profiles[other][0][1] not in seen]
            raise CastoffError(
                f"{asked_by}site {name}: there is no such profile{did_you_mean(name, others)}\n"
                f"there are: {', '.join(profiles)} (`castoff sites`)"
            )
        seen.add(found)
        if kind != "built-in":
            check(found)
        document = Document.read(found)
        if not isinstance(document.data, dict):
            raise invalid(document.origin, "holds no fields, so it is not a site profile")
        yield kind, found, document
        parent = document.data.get("extends")
        if parent is None:
            return
        name = str(parent)
        asked_by = f"{document.where(('extends',))}: extends: "


class _Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    site: Word


def project_site(path: Path) -> str:
    """The site that a project's config.yaml names.

    Raises:
        InvalidInput: it is no such file.
        CastoffError: it may be somebody else's.
    """
    check(path)
    problems: list[Problem] = []
    config = convert(Document.read(path), _Config, problems)
    if config is None or problems:
        raise InvalidInput(problems)
    return config.site


def range_words(range_: Range) -> str:
    """A range in words, as in "1 to 2 nodes for 5m to 1h"."""
    fewest, most = range_.min_nodes, range_.max_nodes
    if most is None:
        words = "any number of nodes" if fewest == 1 else f"at least {nodes_words(fewest)}"
    else:
        words = nodes_words(fewest) if fewest == most else f"{fewest} to {nodes_words(most)}"
    shortest, longest = range_.min_walltime, range_.max_walltime
    if shortest and longest:
        return f"{words} for {shortest} to {longest}"
    if shortest or longest:
        return f"{words} for " + (f"up to {longest}" if longest else f"at least {shortest}")
    return words


def nodes_words(count: int) -> str:
    """A number of nodes in words."""
    return "1 node" if count == 1 else f"{count} nodes"
