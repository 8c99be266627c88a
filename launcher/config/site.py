"""Site: what a machine is. Data only, in YAML; each limit says where it comes from and since when."""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec

from launcher.config.document import Document, FieldPath, did_you_mean, dotted, invalid
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
    variable_problem,
)
from launcher.config.quantities import CPULIST_PATTERN, END, cpus, descending, seconds
from launcher.config.structure import convert, fields_of, takes
from launcher.errors import CastoffError, InvalidInput, Problem
from launcher.trust.decision import check

CpuList = Annotated[
    str, takes("a CPU list, as in 0-51 or 0,52, with numbers up to 9999", pattern=CPULIST_PATTERN)
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

    source: Text  # where this is written
    date: Date  # when it was read there

    @property
    def cited(self) -> str:
        """Both, as a message ends."""
        return f"({self.source}, {self.date})"


class Node(Fact, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The topology of one node."""

    sockets: list[CpuList] = []  # the physical cores of each socket
    reserved_cores: CpuList | None = None  # cores kept for the system
    devices: list[CountOrNone] = []  # how many devices belong to each socket
    device_variable: EnvName | None = None  # the variable that narrows a process to some devices
    # The physical cores nearest to each device, by the device's number; none if all are alike.
    device_cores: list[CpuList] = []
    ranks_per_device: Count = 1  # how many ranks may share a device
    cpus_per_core: Count = 1  # what Slurm counts for one physical core: 2 where a CPU is a hardware thread
    exclusive: bool = False  # whether a job always has its nodes whole; then all their devices are its own
    memory: Memory | None = None  # memory of a node

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
    max_nodes: Count | None = None
    min_walltime: Duration | None = None
    max_walltime: Duration | None = None


class Queue(Fact, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A queue, a partition or a QOS, and its limits."""

    ranges: list[Range] = []  # a job must fit one of these; none means no limit
    max_jobs: Count | None = None  # queued and running jobs of one user
    array_max_concurrent: Count | None = (
        None  # a larger array has to let no more of its members run at a time
    )
    max_devices: Count | None = None  # of a node, for one job; where it is set, jobs share nodes
    listed_as: Word | None = None  # the name under which the scheduler lists it, where users write another
    submit_to: Word | None = None  # the queue to name instead, where this one takes no submissions


class Required(Fact, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A field without which the scheduler refuses a job, or makes of it what nobody meant."""

    field: Word  # the job file's field: account, directives.filesystems …
    because: Text  # what the scheduler says, or why
    example: Text  # a value to write there


class Values(Fact, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a directive may say."""

    among: list[Word]  # the values that there are
    separator: Word | None = None  # what stands between several of them, where one job may name several

    def wrong(self, value: str) -> list[str]:
        """The parts of a value that there are not."""
        parts = value.split(self.separator) if self.separator else [value]
        return [part for part in parts if part not in self.among]


class ArrayLimit(Fact, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The largest array."""

    max_count: Count


class Option(Fact, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What some jobs want of a site, and ask for by its name: it adds to the fields of the same names."""

    description: Text  # what it is for, in one line
    setup: list[ShellLine] = []  # shell lines before those of the job
    setup_last: list[ShellLine] = []  # shell lines after those of the job
    teardown: list[ShellLine] = []  # shell lines after the ranks have ended
    env: dict[EnvName, Text] = {}  # variables, where the job itself does not set them
    launcher_args: list[Word] = []  # further flags of the launcher
    reserved_cores: CpuList | None = None  # cores that no rank may use then
    gpu_type: GpuType | None = None  # the type of GPU that Slurm is asked for then
    ranks_per_node: Count | None = None  # that it is made for, also where a job says nothing


class Site(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a machine is."""

    name: Word
    description: Text  # the machine in one line
    scheduler: Word  # what takes scripts there, by castoff's name for it
    launcher: LauncherName  # what starts processes inside an allocation
    extends: Word | None = None  # the profile that this one changes
    shell: Word = "/bin/bash"  # the job script's interpreter line
    mpiexec: Program = "mpiexec"  # the mpiexec program, where the launcher is one
    launcher_args: list[Word] = []  # further flags of the launcher
    master_suffix: HostSuffix = (
        ""  # what follows a host's short name in MASTER_ADDR: the fast network's domain
    )
    node: Node | None = None
    queues: dict[Word, Queue] = {}
    other_queues: bool = True  # whether there are queues that are not listed here
    default_queue: Word | None = None  # the queue of jobs that name none
    qos: dict[Word, Queue] = {}  # Slurm's qualities of service, described like queues
    other_qos: bool = True  # whether there are QOS that are not listed here
    default_qos: Word | None = None  # the QOS of jobs that name none
    required: list[Required] = []
    array: ArrayLimit | None = None
    select: list[Literal["ncpus", "mpiprocs", "ngpus", "mem"]] = []  # resources that a PBS chunk spells out
    gpu_request: Literal["gpus-per-node", "gres", "gpus-per-task"] | None = None  # Slurm's flag for devices
    gpu_type: GpuType | None = None  # the type of GPU that Slurm is asked for, in its own words: a100 …
    gpu_bind: Word | None = None  # srun's --gpu-bind, for ranks that have devices: closest, none …
    submit_timeout: Duration = "5m"  # how long its submit command may take to answer
    local_storage: Word | None = None  # on each node's own disk, for `stage`; default: TMPDIR, else /tmp
    directives: Directives = {}  # directives of every job
    directive_values: dict[DirectiveName, Values] = {}  # what some may say; others are passed on unread
    env: dict[EnvName, Text] = {}  # environment of every job
    setup: list[ShellLine] = []  # shell lines before those of the job
    setup_last: list[ShellLine] = []  # shell lines after those of the job
    teardown: list[ShellLine] = []  # shell lines after the ranks have ended
    options: dict[Word, Option] = {}  # what some jobs want, and ask for by name
    example_setup: list[ShellLine] = []  # shell lines that `castoff init` proposes as the setup of a job
    defaults: JobSpec = JobSpec()  # job file fields used where a job leaves them out

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
        problems: list[Problem] = []
        site = convert(document, cls, problems)
        if site is not None and not problems:
            problems += [
                Problem(document.where(path), dotted(path), words) for path, words in _contradictions(site)
            ]
        if site is None or problems:
            raise InvalidInput(problems)
        return site


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


def _contradictions(site: Site) -> Iterator[tuple[FieldPath, str]]:
    """What cannot be so: each field is right alone, but not with the others, or not in a script."""
    variables: list[tuple[str, ...]] = [("env", name) for name in site.env]
    variables += [("options", of, "env", name) for of, option in site.options.items() for name in option.env]
    for path in variables:
        if problem := variable_problem(path[-1]):
            yield path, problem
    descend = [*_descending(site)]
    yield from descend
    if site.node is not None and not descend:
        yield from _of_node(site.node)
        yield from _of_reserved(site, site.node)
    yield from _of_queues("queue", "queues", site.queues, site.default_queue, site.other_queues)
    yield from _of_queues("QOS", "qos", site.qos, site.default_qos, site.other_qos)
    fields = fields_of(JobSpec)
    for number, required in enumerate(site.required):
        if required.field not in fields and not required.field.startswith("directives."):
            allowed = f"a job file's field, or directives.NAME{did_you_mean(required.field, fields)}"
            yield ("required", number, "field"), f"is {required.field!r}, but takes {allowed}"


def _of_queues(
    word: str, field: str, queues: dict[str, Queue], default: str | None, others: bool
) -> Iterator[tuple[FieldPath, str]]:
    """Contradictions within the queues, or within the QOS."""
    if default is not None and default not in queues and not others:
        yield (f"default_{word.lower()}",), f"is {default}, which is not a {word} of this site"
    for name, queue in queues.items():
        if queue.submit_to is not None and queue.submit_to not in queues:
            hint = did_you_mean(queue.submit_to, queues)
            message = f"is {queue.submit_to}, which is not a {word} of this site{hint}"
            yield (field, name, "submit_to"), message
        for number, range_ in enumerate(queue.ranges):
            if range_.max_nodes is not None and range_.min_nodes > range_.max_nodes:
                yield (field, name, "ranges", number), "has more nodes as its minimum than as its maximum"
            shortest, longest = range_.min_walltime, range_.max_walltime
            if shortest and longest and seconds(shortest) > seconds(longest):
                yield (field, name, "ranges", number), "has a longer minimum walltime than maximum"


def _descending(site: Site) -> Iterator[tuple[FieldPath, str]]:
    """CPU lists of which a part would be no cores at all."""
    lists: list[tuple[FieldPath, str | None]] = [
        (("options", name, "reserved_cores"), option.reserved_cores) for name, option in site.options.items()
    ]
    if node := site.node:
        lists.append((("node", "reserved_cores"), node.reserved_cores))
        lists += [(("node", "sockets", number), one) for number, one in enumerate(node.sockets)]
        lists += [(("node", "device_cores", number), one) for number, one in enumerate(node.device_cores)]
    for path, text in lists:
        if text and (part := descending(text)):
            yield path, f"is {text}, but {part} descends: write the smaller number first"


def _of_reserved(site: Site, node: Node) -> Iterator[tuple[FieldPath, str]]:
    """Reserved cores that the node has not; where its cores are unknown, nobody can say."""
    there = {core for socket in node.sockets for core in cpus(socket)}
    lists: list[tuple[FieldPath, str | None]] = [(("node", "reserved_cores"), node.reserved_cores)]
    lists += [(("options", name, "reserved_cores"), one.reserved_cores) for name, one in site.options.items()]
    for path, text in lists:
        if there and text and not there.issuperset(cpus(text)):
            yield path, f"is {text}, which no socket has"


def _of_node(node: Node) -> Iterator[tuple[FieldPath, str]]:
    sockets = [set(cpus(socket)) for socket in node.sockets]
    seen: set[int] = set()
    for number, (socket, cores) in enumerate(zip(node.sockets, sockets, strict=True)):
        if len(cpus(socket)) > len(cores) or not seen.isdisjoint(cores):
            yield ("node", "sockets", number), f"is {socket}: each core may appear only once"
        seen |= cores
    if sockets and node.devices and len(node.devices) != len(sockets):
        message = (
            f"has {len(node.devices)} numbers, but there are {len(sockets)} sockets: write one "
            "for each, 0 for a socket without; a device belongs to the one socket that it is connected to"
        )
        yield ("node", "devices"), message
        return
    homes = []
    for number, own in enumerate(node.device_cores):
        home = [at for at, cores in enumerate(sockets) if cores.issuperset(cpus(own))]
        if not home:
            yield ("node", "device_cores", number), f"is {own}, which is not on one socket"
        homes += home
    listed = len(node.device_cores)
    if listed and listed != node.device_count:
        message = f"has {listed} CPU lists, but there are {node.device_count} devices"
        yield ("node", "device_cores"), message
    elif listed and len(homes) == listed and [homes.count(at) for at in range(len(sockets))] != node.devices:
        message = "puts other numbers of devices on the sockets than node.devices"
        yield ("node", "device_cores"), message
    if node.device_count and node.device_variable is None:
        example = "CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES or ZE_AFFINITY_MASK"
        yield ("node", "device_variable"), f"is missing: ranks are given their devices with it; {example}"


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
