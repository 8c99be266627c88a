"""Site: the description of a machine. Only data, in YAML; each limit has its source and a date."""

# No `from __future__ import annotations`: msgspec would compile each annotation at every start.

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from castoff.launcher.config import chunks
from castoff.launcher.config.checked import Checked, verified
from castoff.launcher.config.job import JobSpec
from castoff.launcher.config.job_fields import (
    DirectiveName,
    Directives,
    Duration,
    EnvName,
    LauncherName,
    ResourceName,
    ShellLine,
    Text,
    Word,
)
from castoff.launcher.config.quantities import cpus, descending, seconds
from castoff.launcher.config.site_fields import (
    _BUILT_IN,
    ArrayLimit,
    HostSuffix,
    Need,
    Node,
    Option,
    OtherNodes,
    Program,
    Queue,
    Range,
    RequestForm,
    Required,
    Values,
)
from castoff.launcher.config.variable_names import variable_problem
from castoff.launcher.errors import CastoffError
from castoff.launcher.text.words import counted
from castoff.launcher.trust.decision import check
from castoff.launcher.typed.document import Document, FieldPath, invalid
from castoff.launcher.typed.structure import fields_of
from castoff.launcher.typed.suggestion import did_you_mean

SHORTEST_POLL_INTERVAL = "2s"


class Site(Checked, frozen=True, kw_only=True):
    """A machine as its profile describes it. Invalid fields raise InvalidInput."""

    name: Word
    """The file's name without `.yaml`; a profile does not set it."""
    description: Text
    """The machine in one line."""
    scheduler: Word
    """`slurm`, `pbs`, `flux`, `lsf` or `local`."""
    launcher: LauncherName
    """The launcher of the ranks inside a job; `flux` is flux run."""
    extends: Word | None = None
    """The profile that this one extends."""
    shell: Word = "/bin/bash"
    """The interpreter in the script's first line: bash 4.4 or newer."""
    mpiexec: Program = "mpiexec"
    """The mpiexec to run, if the launcher is one."""
    launcher_args: list[Word] = []
    """More flags for the launcher, in every job."""
    master_suffix: HostSuffix = ""
    """The suffix for the short name of rank 0's host in MASTER_ADDR, such as the domain of the fast network.
    A host that cannot resolve the result tries other names.
    """
    node: Node | None = None
    """The topology of one node."""
    other_nodes: list[OtherNodes] | None = None
    """The other kinds of nodes, for `castoff sites check`. If left out, whether there are any is unknown."""
    queues: dict[Word, Queue] = {}
    """The queues or partitions, by name, with their limits."""
    other_queues: bool = True
    """Whether jobs may use queues that are not listed."""
    default_queue: Word | None = None
    """The queue of jobs that name none; its limits apply to them."""
    queue_choice: list[Word] = []
    """Queues for jobs that name none: castoff requests the first that takes their nodes and walltime."""
    qos: dict[Word, Queue] = {}
    """Slurm's qualities of service, by name, described like queues. A job must fit its queue and its QOS."""
    other_qos: bool = True
    """Whether jobs may use QOS that are not listed."""
    default_qos: Word | None = None
    """The QOS of jobs that name none."""
    required: list[Required] = []
    """Fields that every job must set, because the scheduler otherwise refuses the job or uses a wrong
    default.
    """
    array: ArrayLimit | None = None
    """The largest array."""
    request_form: RequestForm = "select"
    """How PBS is asked for nodes: `select` in chunks, `nodes` as `-l nodes=2:ppn=8`, `ncpus` as `-l ncpus=8`
    for one node, `totals` with the totals of all nodes."""
    requested_resources: list[Literal["ncpus", "mpiprocs", "ngpus", "mem"]] = []
    """Which resources a chunk of a PBS job requests; `select` under `defaults` adds others."""
    gpu_request: Literal["gpus-per-node", "gres", "gpus-per-task"] | None = None
    """How Slurm or Flux is asked for devices."""
    device_type_resource: ResourceName | None = None
    """The resource of a chunk by which PBS is asked for a job's `device_type`, such as `gpu_type` or
    `accelerator_model`. With `request_form: nodes`, the default is a feature of that name."""
    gpu_bind: Word | None = None
    """srun's `--gpu-bind` for ranks that have devices, such as `closest` or `none`."""
    submit_timeout: Duration = "5m"
    """How long sbatch, qsub or flux batch may take. Then castoff ends it and looks for the job in the
    queue."""
    poll_interval: Duration = "2s"
    """The shortest time between two queries of the scheduler by one castoff command. The longer nothing
    changes, the rarer the queries, at least every 30 s unless this is longer.
    """
    local_storage: Word | None = None
    """A folder on each node's local disk for the files of `stage`; if users cannot write to it, its subfolder
    with the user's name. Default: TMPDIR, else `/tmp`.
    """
    directives: Directives = {}
    """Directives of every job, as in a job file. A directive that a field covers is refused: set that field
    under `defaults`.
    """
    directive_values: dict[DirectiveName, Values] = {}
    """The values that a directive may have, by its name; directives not listed are not checked."""
    env: dict[EnvName, Text] = {}
    """Variables of every job, set before `setup`; values from setup or the job win."""
    setup: list[ShellLine] = []
    """Shell lines before those of the job."""
    setup_last: list[ShellLine] = []
    """Shell lines after those of the job."""
    teardown: list[ShellLine] = []
    """Shell lines after the ranks have ended; they do not change the job's exit code."""
    options: dict[Word, Option] = {}
    """Settings that only some jobs need, by the name under which a job requests them."""
    needs: list[Need] = []
    """Features that only work together with an option."""
    example_setup: list[ShellLine] = []
    """Shell lines that `castoff init` proposes as a job's setup, such as the modules to load."""
    defaults: JobSpec = JobSpec()
    """Fields of a job file, for jobs that do not set them."""

    def cpus_of(self, cores: int | None) -> int | None:
        """The number of CPUs of so many cores, as Slurm counts them in --cpus-per-task."""
        return cores and cores * (self.node.cpus_per_core if self.node else 1)

    @classmethod
    def load(cls, name: str, *, search: "Search | None" = None) -> "Site":
        """Read the profile of that name: the project's, else the user's, else the built-in one.

        Raises:
            CastoffError: there is no such profile, or it extends itself in a circle.
            InvalidInput: with every problem of the profile.
        """
        document = Document({}, f"site {name}")
        for _, _, layer in reversed(list(_layers(name, search or Search.here()))):
            document.merge(layer)
        document.put(["name"], Document(name, document.origin), document.origin)
        for field in ("queues", "qos", "env", "options", "directive_values"):
            # null removes an entry of an extended profile.
            entries = document.data.get(field)
            if isinstance(entries, dict):
                document.data[field] = {key: value for key, value in entries.items() if value is not None}
        return verified(document, cls, [], contradictions)

    def _contradictions(self) -> Iterator[tuple[FieldPath, str]]:
        return contradictions(self)


class Search(msgspec.Struct, frozen=True):
    """The folders with profiles, and the environment that may name one."""

    environ: Mapping[str, str]
    project: Path | None
    """The working directory or its nearest parent that contains `.castoff/`."""
    draft: tuple[Path, str] | None = None
    """A profile's path, and a text to read instead of the file's content."""

    @classmethod
    def here(cls) -> "Search":
        """The search from this process's working directory, with its environment.

        Raises:
            CastoffError: others could have written into the project's folder.
        """
        folder = project_folder()
        if folder is not None:
            is_here = folder.parent == Path.cwd()
            check(folder, otherwise="" if is_here else "or make this folder its own project: mkdir .castoff")
        return cls(os.environ, folder and folder.parent)

    def folders(self) -> list[tuple[str, Path]]:
        """The folders for profiles, which need not exist, and their kinds: project, user, built-in."""
        home = self.environ.get("HOME", "/nonexistent")
        config = self.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
        folders = [("user", Path(config, "castoff", "sites")), ("built-in", _BUILT_IN)]
        if self.project is not None:
            folders.insert(0, ("project", self.project / ".castoff" / "sites"))
        return folders

    def profiles(self) -> dict[str, list[tuple[str, Path]]]:
        """The names of all profiles, each with its files in order of precedence and their kinds."""
        files: dict[str, list[tuple[str, Path]]] = {}
        for kind, folder in self.folders():
            paths = {*(folder.glob("*.yaml") if folder.is_dir() else [])}
            if self.draft and self.draft[0].parent == folder:
                paths.add(self.draft[0])
            for path in sorted(paths):
                files.setdefault(path.stem, []).append((kind, path))
        return dict(sorted(files.items()))


def project_folder() -> Path | None:
    """The `.castoff/` of the working directory or its nearest parent that has one, whoever owns it."""
    here = Path.cwd()
    folders = (folder / ".castoff" for folder in (here, *here.parents))
    return next((folder for folder in folders if folder.is_dir()), None)


def project_profiles(name: str, search: Search) -> list[Path]:
    """The project's files that make up the profile of that name."""
    return [path for kind, path, _ in _layers(name, search) if kind == "project"]


def _layers(name: str, search: Search) -> Iterator[tuple[str, Path, Document]]:
    """Yield the profile, then the profiles that it extends, each as (kind, path, document)."""
    seen: set[Path] = set()
    profiles = search.profiles()
    requested_by = ""
    while True:
        unseen = ((kind, path) for kind, path in profiles.get(name, []) if path not in seen)
        kind, path = next(unseen, ("", None))
        if path is None and name in profiles:
            raise CastoffError(f"{requested_by}site {name}: extends itself in a circle; drop one `extends:`")
        if path is None:
            others = [other for other in profiles if profiles[other][0][1] not in seen]
            raise CastoffError(
                f"{requested_by}site {name}: there is no such profile{did_you_mean(name, others)}\n"
                f"there are: {', '.join(profiles)} (`castoff sites`)"
            )
        seen.add(path)
        if search.draft and path == search.draft[0]:
            document = Document.parse(search.draft[1], str(path))
        else:
            if kind != "built-in":
                check(path)
            document = Document.read(path)
        if not isinstance(document.data, dict):
            raise invalid(document.origin, "holds no fields, so it is not a site profile")
        yield kind, path, document
        parent = document.data.get("extends")
        if parent is None:
            return
        name = str(parent)
        requested_by = f"{document.where(('extends',))}: extends: "


def range_words(range_: Range) -> str:
    """A range in words, such as "1 to 2 nodes for 5m to 1h"."""
    fewest, most = range_.min_nodes, range_.max_nodes
    if most is None:
        words = "any number of nodes" if fewest == 1 else f"at least {counted(fewest, 'node')}"
    else:
        words = counted(fewest, "node") if fewest == most else f"{fewest:,} to {counted(most, 'node')}"
    shortest, longest = range_.min_walltime, range_.max_walltime
    if shortest and longest:
        return f"{words} for {shortest} to {longest}"
    if shortest or longest:
        return f"{words} for " + (f"up to {longest}" if longest else f"at least {shortest}")
    return words


def contradictions(site: Site) -> Iterator[tuple[FieldPath, str]]:
    """Yield the problems of fields that are valid alone but not together, and of variables that a script
    cannot set.
    """
    variables: list[tuple[str, ...]] = [("env", name) for name in site.env]
    variables += [("options", of, "env", name) for of, option in site.options.items() for name in option.env]
    for path in variables:
        if problem := variable_problem(path[-1]):
            yield path, problem
    if seconds(site.poll_interval) < seconds(SHORTEST_POLL_INTERVAL):
        yield (
            ("poll_interval",),
            f"is {site.poll_interval}, but must be at least {SHORTEST_POLL_INTERVAL}",
        )
    descend = [*_descending(site)]
    yield from descend
    yield from ((("defaults", *path), message) for path, message in chunks.problems(site.defaults.select))
    if isinstance(site.defaults.select, list):
        fix = "write a mapping, as in {model: mil_ait}"
        yield (
            ("defaults", "select"),
            f"is a list, but a site's resources are for every chunk: {fix}",
        )
    if site.node is not None and not descend:
        yield from _of_node(site.node)
        yield from _of_reserved(site, site.node)
    yield from _of_queues("queue", "queues", site.queues, site.default_queue, site.other_queues)
    yield from _of_queues("QOS", "qos", site.qos, site.default_qos, site.other_qos)
    for number, name in enumerate(site.queue_choice):
        if name not in site.queues:
            hint = did_you_mean(name, site.queues)
            yield ("queue_choice", number), f"is {name}, which is not a queue of this site{hint}"
    for name, queue in site.queues.items():
        if queue.select_counts == "devices":
            yield from ((("queues", name, *path), message) for path, message in _of_devices(site, queue))
    fields = fields_of(JobSpec)
    for number, required in enumerate(site.required):
        if required.field not in fields and not required.field.startswith("directives."):
            allowed = f"a job file's field, or directives.NAME{did_you_mean(required.field, fields)}"
            yield ("required", number, "field"), f"is {required.field!r}, but takes {allowed}"


def _of_queues(
    word: str, field: str, queues: dict[str, Queue], default: str | None, others: bool
) -> Iterator[tuple[FieldPath, str]]:
    """Yield the problems of the queues, or of the QOS."""
    if default is not None and default not in queues and not others:
        yield (f"default_{word.lower()}",), f"is {default}, which is not a {word} of this site"
    for name, queue in queues.items():
        if queue.submit_to is not None and queue.submit_to not in queues:
            hint = did_you_mean(queue.submit_to, queues)
            yield (
                (field, name, "submit_to"),
                f"is {queue.submit_to}, which is not a {word} of this site{hint}",
            )
        for number, range_ in enumerate(queue.ranges):
            if range_.max_nodes is not None and range_.min_nodes > range_.max_nodes:
                yield (field, name, "ranges", number), "has more nodes as its minimum than as its maximum"
            shortest, longest = range_.min_walltime, range_.max_walltime
            if shortest and longest and seconds(shortest) > seconds(longest):
                yield (field, name, "ranges", number), "has a longer minimum walltime than maximum"
        if queue.max_devices and queue.device_counts:
            yield (field, name, "device_counts"), "is set, and so is max_devices: drop one of the two"
        if queue.exclusive and queue.most_devices:
            shared = "max_devices" if queue.max_devices else "device_counts"
            yield (field, name, "exclusive"), f"is true, but with {shared} jobs share nodes: drop one"


def _of_devices(site: Site, queue: Queue) -> Iterator[tuple[FieldPath, str]]:
    """Yield the problems of a queue whose `select` counts devices."""
    if not queue.ranges or any(range_.max_nodes != 1 for range_ in queue.ranges):
        yield ("ranges",), "must each have max_nodes: 1, as select_counts: devices is for one node"
    if not queue.most_devices:
        yield ("select_counts",), "is devices, but device_counts and max_devices are missing: write one"
    if site.request_form != "select":
        yield ("select_counts",), f"is devices, but request_form is {site.request_form}: drop one of the two"
    if site.node is None or not site.node.device_count:
        yield ("select_counts",), "is devices, but node.devices is missing: write it"


def _descending(site: Site) -> Iterator[tuple[FieldPath, str]]:
    """Yield the problems of CPU lists with a descending range, which would contain no cores."""
    lists: list[tuple[FieldPath, str | None]] = [
        (("options", name, "reserved_cores"), option.reserved_cores) for name, option in site.options.items()
    ]
    if node := site.node:
        lists.append((("node", "reserved_cores"), node.reserved_cores))
        lists += [(("node", "sockets", number), text) for number, text in enumerate(node.sockets)]
        lists += [(("node", "device_cores", number), text) for number, text in enumerate(node.device_cores)]
    for path, text in lists:
        if text and (part := descending(text)):
            yield path, f"is {text}, but {part} descends: write the smaller number first"


def _of_reserved(site: Site, node: Node) -> Iterator[tuple[FieldPath, str]]:
    """Yield a problem if no socket has a reserved core; nothing if the sockets' cores are unknown."""
    cores = {core for socket in node.sockets for core in cpus(socket)}
    lists: list[tuple[FieldPath, str | None]] = [(("node", "reserved_cores"), node.reserved_cores)]
    lists += [
        (("options", name, "reserved_cores"), option.reserved_cores) for name, option in site.options.items()
    ]
    for path, text in lists:
        if cores and text and not cores.issuperset(cpus(text)):
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
    sockets_of_devices = []
    for number, nearest in enumerate(node.device_cores):
        socket_numbers = [index for index, cores in enumerate(sockets) if cores.issuperset(cpus(nearest))]
        if not socket_numbers:
            yield ("node", "device_cores", number), f"is {nearest}, but must be on one socket"
        sockets_of_devices += socket_numbers
    listed = len(node.device_cores)
    if listed and listed != node.device_count:
        message = f"has {listed} CPU lists, but there are {node.device_count} devices"
        yield ("node", "device_cores"), message
    if node.device_names and len(node.device_names) != node.device_count:
        message = f"has {len(node.device_names)} names, but there are {node.device_count} devices"
        yield ("node", "device_names"), message
    if (
        listed == node.device_count
        and listed
        and len(sockets_of_devices) == listed
        and [sockets_of_devices.count(index) for index in range(len(sockets))] != node.devices
    ):
        message = "puts other numbers of devices on the sockets than node.devices"
        yield ("node", "device_cores"), message
    if node.device_count and node.device_variable is None:
        example = "CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES or ZE_AFFINITY_MASK"
        yield (
            ("node", "device_variable"),
            f"is missing: castoff gives ranks their devices by this variable; {example}",
        )
