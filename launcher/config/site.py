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
    Memory,
    ShellLine,
    StarterName,
    Text,
    Word,
    variable_problem,
)
from launcher.config.quantities import CPULIST_PATTERN, END, cpus, seconds
from launcher.config.structure import convert, fields_of, meaning, takes
from launcher.errors import CastoffError, InvalidInput, Problem

CpuList = Annotated[str, takes("a CPU list, as in 0-51 or 0,52", pattern=CPULIST_PATTERN)]
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

_BUILT_IN = Path(__file__).parents[1] / "sites"


class Fact(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Something that somebody else decides: it names its source and the date it was read."""

    source: Annotated[Text, meaning("Where this is written.")]
    date: Annotated[Date, meaning("When it was read there.")]

    @property
    def cited(self) -> str:
        """Both, as a message ends."""
        return f"({self.source}, {self.date})"


class Node(Fact, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The topology of one node."""

    sockets: Annotated[list[CpuList], meaning("The physical cores of each socket.")] = []
    reserved_cores: Annotated[CpuList | None, meaning("Cores kept for the system.")] = None
    devices: Annotated[list[CountOrNone], meaning("How many devices belong to each socket.")] = []
    device_variable: Annotated[
        EnvName | None, meaning("The variable that narrows a process to some devices.")
    ] = None
    device_cores: Annotated[
        list[CpuList],
        meaning("The physical cores nearest to each device, by the device's number; none if all are alike."),
    ] = []
    ranks_per_device: Annotated[Count, meaning("How many ranks may share a device.")] = 1
    cpus_per_core: Annotated[
        Count, meaning("What Slurm counts for one physical core: 2 where a CPU is a hardware thread.")
    ] = 1
    exclusive: Annotated[
        bool, meaning("Whether a job always has its nodes whole; then all their devices are its own.")
    ] = False
    memory: Annotated[Memory | None, meaning("Memory of a node.")] = None

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

    ranges: Annotated[list[Range], meaning("A job must fit one of these; none means no limit.")] = []
    max_jobs: Annotated[Count | None, meaning("Queued and running jobs of one user.")] = None
    array_at_most: Annotated[
        Count | None, meaning("A larger array has to let no more of its members run at a time.")
    ] = None
    max_devices: Annotated[
        Count | None, meaning("Devices of a node that a job may have; where it is set, jobs share nodes.")
    ] = None
    listed_as: Annotated[
        Word | None, meaning("The name under which the scheduler lists it, where users write another.")
    ] = None
    submit_to: Annotated[
        Word | None, meaning("The queue to name instead, where this one takes no submissions.")
    ] = None


class Required(Fact, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A field without which the scheduler refuses a job."""

    field: Annotated[Word, meaning("The job file's field: account, directives.filesystems …")]
    because: Annotated[Text, meaning("What the scheduler says, or why.")]
    example: Annotated[Text, meaning("A value to write there.")]


class Values(Fact, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a directive may say."""

    among: Annotated[list[Word], meaning("The values that there are.")]
    separator: Annotated[
        Word | None, meaning("What stands between several of them, where one job may name several.")
    ] = None

    def wrong(self, value: str) -> list[str]:
        """The parts of a value that there are not."""
        parts = value.split(self.separator) if self.separator else [value]
        return [part for part in parts if part not in self.among]


class ArrayLimit(Fact, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The largest array."""

    max_count: Count


class Option(Fact, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What some jobs want of a site, and ask for by its name: it adds to the fields of the same names."""

    description: Annotated[Text, meaning("What it is for, in one line.")]
    setup: Annotated[list[ShellLine], meaning("Shell lines before those of the job.")] = []
    setup_last: Annotated[list[ShellLine], meaning("Shell lines after those of the job.")] = []
    teardown: Annotated[list[ShellLine], meaning("Shell lines after the ranks have ended.")] = []
    env: Annotated[dict[EnvName, Text], meaning("Variables, where the job itself does not set them.")] = {}
    start_args: Annotated[list[Word], meaning("Further flags of the starter.")] = []
    reserved_cores: Annotated[CpuList | None, meaning("Cores that no rank may use then.")] = None
    gpu_type: Annotated[GpuType | None, meaning("The type of GPU that Slurm is asked for then.")] = None
    ranks_per_node: Annotated[
        Count | None, meaning("The ranks on each node that it is made for, also where a job says nothing.")
    ] = None


class Site(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a machine is."""

    name: Word
    description: Annotated[Text, meaning("The machine in one line.")]
    scheduler: Annotated[Word, meaning("What takes scripts there, by castoff's name for it.")]
    starter: Annotated[StarterName, meaning("What starts processes inside an allocation.")]
    extends: Annotated[Word | None, meaning("The profile that this one changes.")] = None
    shell: Annotated[Word, meaning("The job script's interpreter line.")] = "/bin/bash"
    mpiexec: Annotated[Program, meaning("The mpiexec program, where the starter is one.")] = "mpiexec"
    start_args: Annotated[list[Word], meaning("Further flags of the starter.")] = []
    master_suffix: Annotated[
        Text, meaning("What follows a host's short name in MASTER_ADDR: the fast network's domain.")
    ] = ""
    node: Node | None = None
    queues: dict[Word, Queue] = {}
    other_queues: Annotated[bool, meaning("Whether there are queues that are not listed here.")] = True
    default_queue: Annotated[Word | None, meaning("The queue of jobs that name none.")] = None
    qos: Annotated[dict[Word, Queue], meaning("Slurm's qualities of service, described like queues.")] = {}
    other_qos: Annotated[bool, meaning("Whether there are QOS that are not listed here.")] = True
    default_qos: Annotated[Word | None, meaning("The QOS of jobs that name none.")] = None
    required: list[Required] = []
    array: ArrayLimit | None = None
    select: Annotated[
        list[Literal["ncpus", "mpiprocs", "ngpus", "mem"]], meaning("Resources that a PBS chunk spells out.")
    ] = []
    gpu_request: Annotated[
        Literal["gpus-per-node", "gres", "gpus-per-task"] | None, meaning("How Slurm is asked for devices.")
    ] = None
    gpu_type: Annotated[
        GpuType | None, meaning("The type of GPU that Slurm is asked for, in its own words: a100 …")
    ] = None
    gpu_bind: Annotated[
        Word | None, meaning("srun's --gpu-bind, for ranks that have devices: closest, none …")
    ] = None
    local_storage: Annotated[
        Word | None, meaning("A folder on each node's own disk, for `stage`; default: TMPDIR, else /tmp.")
    ] = None
    directives: Annotated[Directives, meaning("Directives of every job.")] = {}
    directive_values: Annotated[
        dict[DirectiveName, Values], meaning("What some directives may say; others are passed on unread.")
    ] = {}
    env: Annotated[dict[EnvName, Text], meaning("Environment of every job.")] = {}
    setup: Annotated[list[ShellLine], meaning("Shell lines before those of the job.")] = []
    setup_last: Annotated[list[ShellLine], meaning("Shell lines after those of the job.")] = []
    teardown: Annotated[list[ShellLine], meaning("Shell lines after the ranks have ended.")] = []
    options: Annotated[dict[Word, Option], meaning("What some jobs want, and ask for by name.")] = {}
    example_setup: Annotated[
        list[ShellLine], meaning("Shell lines that `castoff init` proposes as the setup of a job.")
    ] = []
    defaults: Annotated[JobSpec, meaning("Job file fields used where a job leaves them out.")] = JobSpec()

    @property
    def binds_devices(self) -> bool:
        """Whether srun shows each rank its own devices alone, numbered from 0."""
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
        for layer in reversed(list(_layers(name, search or Search.here()))):
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
        """From this process's working directory and environment."""
        folder = Path.cwd()
        found = (at for at in (folder, *folder.parents) if (at / ".castoff").is_dir())
        return cls(os.environ, next(found, None))

    def profiles(self) -> dict[str, list[tuple[str, Path]]]:
        """Every profile's name with its files, nearest first, each with a word for where it is."""
        config = self.environ.get("XDG_CONFIG_HOME") or Path(
            self.environ.get("HOME", "/nonexistent"), ".config"
        )
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
    places: list[tuple[FieldPath, dict[str, str]]] = [(("env",), site.env)]
    places += [(("options", name, "env"), option.env) for name, option in site.options.items()]
    for place, env in places:
        for name in env:
            if problem := variable_problem(name):
                yield (*place, name), problem
    if site.node is not None:
        yield from _of_node(site.node)
    yield from _of_queues("queue", "queues", site.queues, site.default_queue, site.other_queues)
    yield from _of_queues("QOS", "qos", site.qos, site.default_qos, site.other_qos)
    fields = fields_of(JobSpec)
    for number, required in enumerate(site.required):
        if required.field not in fields and not required.field.startswith("directives."):
            hint = did_you_mean(required.field, fields)
            yield (
                ("required", number, "field"),
                f"is {required.field!r}, but takes a job file's field, or directives.NAME{hint}",
            )


def _of_queues(
    word: str, field: str, queues: dict[str, Queue], default: str | None, others: bool
) -> Iterator[tuple[FieldPath, str]]:
    """Contradictions within the queues, or within the QOS."""
    if default is not None and default not in queues and not others:
        yield (f"default_{word.lower()}",), f"is {default}, which is no {word} of this site"
    for name, queue in queues.items():
        if queue.submit_to is not None and queue.submit_to not in queues:
            hint = did_you_mean(queue.submit_to, queues)
            yield (field, name, "submit_to"), f"is {queue.submit_to}, which is no {word} of this site{hint}"
        for number, range_ in enumerate(queue.ranges):
            if range_.max_nodes is not None and range_.min_nodes > range_.max_nodes:
                yield (field, name, "ranges", number), "has more nodes as its minimum than as its maximum"
            shortest, longest = range_.min_walltime, range_.max_walltime
            if shortest and longest and seconds(shortest) > seconds(longest):
                yield (field, name, "ranges", number), "has a longer minimum walltime than maximum"


def _of_node(node: Node) -> Iterator[tuple[FieldPath, str]]:
    sockets = [set(cpus(socket)) for socket in node.sockets]
    seen: set[int] = set()
    for number, (socket, cores) in enumerate(zip(node.sockets, sockets, strict=True)):
        if not cores or len(cpus(socket)) > len(cores) or not seen.isdisjoint(cores):
            yield ("node", "sockets", number), f"is {socket}: each core stands once, and a range ascends"
        seen |= cores
    if sockets and node.reserved_cores and not seen.issuperset(cpus(node.reserved_cores)):
        yield ("node", "reserved_cores"), f"is {node.reserved_cores}, which no socket has"
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


def _layers(name: str, search: Search) -> Iterator[Document]:
    """The profile's documents, the profile itself first, then what each extends."""
    seen: set[Path] = set()
    profiles = search.profiles()
    asked_by = ""
    while True:
        found = next((path for _, path in profiles.get(name, []) if path not in seen), None)
        if found is None and name in profiles:
            raise CastoffError(f"{asked_by}site {name}: extends itself in a circle; drop one `extends:`")
        if found is None:
            others = [other for other in profiles if profiles[other][0][1] not in seen]
            raise CastoffError(
                f"{asked_by}site {name}: there is no such profile{did_you_mean(name, others)}\n"
                f"there are: {', '.join(profiles)} (`castoff sites`)"
            )
        seen.add(found)
        document = Document.read(found)
        if not isinstance(document.data, dict):
            raise invalid(document.origin, "holds no fields, so it is no site profile")
        yield document
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
    """
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
