"""The parts of a job file, and the types of its fields."""

# No `from __future__ import annotations`: msgspec would compile each annotation at every start.

from collections.abc import Sequence
from typing import Annotated, Any, Literal, get_args

import msgspec

from castoff.launcher.config.array_indices import index_list, indices
from castoff.launcher.config.parameters import Table, size_of
from castoff.launcher.config.quantities import (
    CPULISTS_PATTERN,
    DURATION_PATTERN,
    DURATION_TAKES,
    END,
    MEMORY_PATTERN,
    MEMORY_TAKES,
    SIGNAL_PATTERN,
    SIGNAL_TAKES,
)
from castoff.launcher.typed.structure import meaning, takes


def _scalar(words: str, many: str, pattern: str) -> msgspec.Meta:
    """A text that may also be written as a number, true or false."""
    return takes(words, many=many, pattern=f"^{pattern}{END}", extra_json_schema={"x-scalar": True})


Word = Annotated[str, _scalar("one line of text, not empty", "lines of text, none empty", r"[^\x00\n\r]+")]
Text = Annotated[str, _scalar("text", "texts", r"[^\x00]*")]
ShellLine = Annotated[
    str,
    _scalar("a shell line without carriage returns, which Windows adds", "shell lines", r"[^\x00\r]*"),
]
EnvValue = Annotated[Text | None, takes("text or null", many="texts or null")]
Indices = Annotated[
    str,
    _scalar(
        "numbers and ranges joined by commas, as in 1,3-5,10-20:2",
        "numbers and ranges",
        r"[^\x00\n\r]+",  # `array_indices.problem` has messages for other texts
    ),
]
ParameterName = Annotated[
    str,
    takes(
        "a parameter's name (letters, digits and _)",
        many="parameters' names (letters, digits and _)",
        pattern=rf"^[A-Za-z_][A-Za-z0-9_]*{END}",
    ),
]
ParameterValue = Annotated[
    str,
    _scalar(
        "one line of text, a number, true or false",
        "values, each one line of text, a number, true or false",
        r"[^\x00-\x08\x0a-\x1f\x7f]*",
    ),
]
_Lists = list[ParameterValue] | dict[ParameterName, list[ParameterValue]]
Parameters = Annotated[
    dict[ParameterName, Annotated[_Lists, takes("a list of values, as in [1e-3, 1e-4]")]]
    | list[dict[ParameterName, ParameterValue]]
    | str
    | None,
    takes(
        "lists of values by name, as in {lr: [1e-3, 1e-4], seed: [0, 1]}; or a list of combinations; "
        "or a table's file, as in runs.csv"
    ),
]
EnvName = Annotated[
    str,
    takes(
        "a variable's name (letters, digits and _)",
        many="variables' names (letters, digits and _)",
        pattern=rf"^[A-Za-z_][A-Za-z0-9_]*{END}",
    ),
]
Count = Annotated[
    int, takes("a whole number of at least 1", many="whole numbers of at least 1", ge=1, le=10_000_000)
]
CountOrNone = Annotated[
    int, takes("a whole number of at least 0", many="whole numbers of at least 0", ge=0, le=1_000_000)
]
ExitCode = Annotated[int, takes("an exit code from 1 to 255", many="exit codes from 1 to 255", ge=1, le=255)]
Duration = Annotated[str, takes(DURATION_TAKES, pattern=DURATION_PATTERN)]
ProgramSignal = Annotated[str, takes(SIGNAL_TAKES, pattern=SIGNAL_PATTERN)]
Memory = Annotated[str, takes(MEMORY_TAKES, pattern=MEMORY_PATTERN)]
CpuLists = Annotated[
    str,
    takes(
        "a CPU list for each rank of a node, joined by :, as in 4-7:8-11, with numbers up to 9999",
        pattern=CPULISTS_PATTERN,
    ),
]
DirectiveName = Annotated[
    str, takes("a directive's name (letters, digits, - and _)", pattern=rf"^[A-Za-z][A-Za-z0-9_-]*{END}")
]
Directive = Word | bool | None
Directives = Annotated[
    dict[DirectiveName, Directive | dict[DirectiveName, Directive]],
    takes("names, each with text, true, false or null, and under a scheduler's name its own directives"),
]
ResourceName = Annotated[
    str, takes("a resource's name (letters, digits, - and _)", pattern=rf"^[A-Za-z][A-Za-z0-9_-]*{END}")
]
Resource = Annotated[Word | bool | None, takes("text, true, false or null")]
Resources = dict[ResourceName, Resource]
Select = Annotated[
    Resources | list[Resources],
    takes(
        "resources by their names, as in {model: mil_ait}, beside nodes, ranks_per_node and memory; "
        "or a list of such, one for each kind of chunk"
    ),
]
DeviceType = Annotated[
    str,
    takes(
        "a type of device as the scheduler lists it, as in a100 (letters, digits, - _ and .)",
        pattern=rf"^[A-Za-z0-9][A-Za-z0-9_.-]*{END}",
    ),
]
ModuleName = Annotated[
    str,
    takes(
        "a module's name, as torch or torch.distributed",
        many="modules' names, as torch or torch.distributed",
        pattern=rf"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*{END}",
    ),
]
Sha256 = Annotated[str, takes("a SHA-256 sum: 64 hexadecimal digits", pattern=rf"^[0-9A-Fa-f]{{64}}{END}")]
LauncherName = Literal["srun", "pals", "hydra", "intelmpi", "openmpi", "flux", "local"]
OwnDistribution = Literal["arbitrary", "own"]  # of srun: in the order of a host file, or another order
RuntimeName = Literal["apptainer", "shifter", "podman-hpc", "pyxis"]
Gpus = Literal["nvidia", "amd", "intel", "none"]
Condition = Literal["after", "afterok", "afternotok", "afterany", "aftercorr"]
RequeueWay = Literal["copy", "chain"]
RequeueCause = Literal["stop", "walltime", "preempted", "node-failure"]
BY_SCHEDULER: tuple[RequeueCause, ...] = ("preempted", "node-failure")
"""Endings after which some schedulers requeue a job by themselves."""


class LauncherOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, repr_omit_defaults=True):
    """How the ranks start."""

    name: Annotated[
        LauncherName | None, meaning("Default: that of the MPI that `setup` loads, else the site's.")
    ] = None
    torchrun: Annotated[bool, meaning("Start torchrun once on each node; torchrun starts the ranks.")] = False
    """Set torchrun's own options as variables, as in `env: {PET_MAX_RESTARTS: "3"}`; a rank then counts as
    failed once torchrun has no restarts left."""
    driver: Annotated[
        bool,
        meaning("Run the command once, on the first host; it starts its own workers on all hosts."),
    ] = False
    """For Ray, Dask, Parsl and libEnsemble, and for programs that start their own ranks. `cores_per_rank` and
    `devices_per_rank` then apply to each node; default: all that it has. `ranks`, `ranks_per_node`, `binding`
    and the other fields of `launcher` are refused."""
    args: Annotated[
        list[Word],
        meaning("Further flags for the launcher, one word each."),
    ] = []
    """A flag that binds ranks to cores (`--cpu-bind`, `--bind-to`) replaces castoff's and the site's. srun's
    `--distribution` sets where each rank goes: `cyclic` places them round-robin, and `arbitrary` follows a
    file with one host per rank, which `setup` names in SLURM_HOSTFILE."""
    timeout: Annotated[
        Duration | None,
        meaning(
            "How long ranks on several nodes may take to start before castoff ends the job; default 10m."
        ),
    ] = None
    """The job then ends as `failed` and names the hosts whose ranks are missing; a first warning appears
    after 20 s. The time for `setup` and `stage` does not count. There is no limit in an allocation, where
    ranks may wait for those of another launch, nor with pyxis, which imports the image first."""
    preload: Annotated[
        list[ModuleName] | None,
        meaning("Modules that one process of each node imports for all its ranks, as in [torch]."),
    ] = None
    """The ranks start as copies of that process, within a fraction of a second. On one machine the default is
    [torch] if there are several ranks and the command is a script that imports it; elsewhere it is []."""


class Container(msgspec.Struct, frozen=True, forbid_unknown_fields=True, repr_omit_defaults=True):
    """The container that each rank's program runs in; none without an image."""

    image: Annotated[
        Word | None,
        meaning("The image: an absolute path, stage/… for one that `stage` copies, or the runtime's name."),
    ] = None
    runtime: Annotated[RuntimeName | None, meaning("The runtime; a site may set it in its `defaults`.")] = (
        None
    )
    binds: Annotated[
        list[Word], meaning("Host folders to mount: PATH, PATH:INSIDE or PATH:INSIDE:ro, absolute.")
    ] = []
    env: Annotated[dict[EnvName, Text], meaning("Variables set only inside, after `env`.")] = {}
    gpus: Annotated[
        Gpus | None, meaning("Which vendor's GPUs it gets; default: that of the site's devices.")
    ] = None
    args: Annotated[list[Word], meaning("Further flags of the runtime, one word each.")] = []


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that is copied to each node's own disk before the ranks start."""

    source: Annotated[
        Word, meaning("A file, folder or archive; a relative path starts where the job was submitted.")
    ] = msgspec.field(name="from")
    to: Annotated[
        Word | None,
        meaning("Its path under CASTOFF_STAGE_DIR; default: its name, without an archive's ending."),
    ] = None
    unpack: Annotated[
        bool | None, meaning("Whether to unpack it; default: yes, if its name has an archive's ending.")
    ] = None
    sha256: Annotated[Sha256 | None, meaning("Its SHA-256 sum, checked on each node.")] = None
    activate: Annotated[
        bool,
        meaning("It is an environment: put its bin first on the ranks' PATH and run conda-unpack."),
    ] = False


class SharedNodes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, repr_omit_defaults=True):
    """The size of the jobs whose members share an allocation."""

    nodes: Annotated[
        Count | None,
        meaning("How many nodes one job has, which works through all members; excludes members."),
    ] = None
    members: Annotated[
        Count | None, meaning("How many members one job runs side by side; excludes nodes.")
    ] = None
    per_node: Annotated[
        Count | None,
        meaning("How many members a node runs at the same time; default: as many as fit it."),
    ] = None


class Array(msgspec.Struct, frozen=True, forbid_unknown_fields=True, repr_omit_defaults=True):
    """Many members of one job, each with its own CASTOFF_ARRAY_INDEX; it has `count`, `indices`, `parameters`
    or `commands`.
    """

    count: Annotated[Count | None, meaning("How many members, numbered from 0.")] = None
    indices: Annotated[
        Indices | None,
        meaning("The members' numbers, instead of count: numbers and ranges, as in 1,3-5,10-20:2."),
    ] = None
    """The number after a colon is the range's step."""
    parameters: Annotated[
        Parameters,
        meaning("Values for the members, instead of count: a member for each combination, or for each row."),
    ] = None
    """Lists by name make every combination, the last name's fastest; those under `zip` change together. A
    list of mappings has chosen combinations. A name that ends in .csv or .tsv is a table with a header,
    relative to the job file. `{lr}` in `command`, `env`, `workdir` and `name` becomes the member's value."""
    commands: Annotated[
        Word | None,
        meaning("A file with a shell command a line, each for a member, instead of count."),
    ] = None
    """Relative to the job file. Blank lines and those that begin with # do not count. Each line is the
    parameter `command`, and the job's command is `[bash, -c, "{command}"]` unless it sets another."""
    max_concurrent: Annotated[Count | None, meaning("How many members may run at the same time.")] = None
    """On one machine, never more than its cores and devices allow."""
    together: Annotated[
        Count | Literal["node", "job"] | SharedNodes | None,
        takes("a number of members, node, job, or a mapping with nodes or members"),
        meaning("Members share the allocation of one job; default: each member has a job of its own."),
    ] = None
    """A number: so many members in each job, side by side. `node`: as many as fill a node. `job`, or
    `{nodes: N}`: one job, with the nodes of one member, or N, works through all members: when one ends, the
    next begins on its hosts. Several members share a node if their cores, devices and memory fit. The
    walltime is the job's."""

    @property
    def shared(self) -> SharedNodes | None:
        """The size of the jobs that members share; None: each member has a job of its own."""
        if isinstance(self.together, int):
            return SharedNodes(members=self.together)
        return SharedNodes() if isinstance(self.together, str) else self.together

    @property
    def members(self) -> Sequence[int]:
        """The members' numbers, ascending."""
        if self.indices is not None:
            return indices(self.indices)
        values = self._values
        return range(self.count or 1 if values is None else size_of(values))

    @property
    def size(self) -> int:
        """The number of members."""
        return len(self.members)

    @property
    def table(self) -> Table | None:
        """The members' parameters."""
        return None if self._values is None else Table.of(self._values)

    @property
    def _values(self) -> Any:
        """`parameters`, unless they name a file, which only a job file can do."""
        return None if isinstance(self.parameters, str) else self.parameters

    @property
    def own_indices(self) -> str | None:
        """The members' numbers as text; None if they are all numbers from 0."""
        members = self.members
        return None if members[-1] == len(members) - 1 else index_list(members)

    @property
    def size_words(self) -> str:
        """The number of members, as shown in an error about `field`."""
        if self.parameters is not None:
            return f"{self.size} members"
        return str(self.size) if self.indices is None else f"{self.indices}, {self.size} members"

    @property
    def field(self) -> str:
        """The field that determines the number of members."""
        if self.parameters is not None:
            return "array.parameters"
        return "array.count" if self.indices is None else "array.indices"


class Requeue(msgspec.Struct, frozen=True, forbid_unknown_fields=True, repr_omit_defaults=True):
    """Resuming a run that is not done when its job ends."""

    max: Annotated[
        CountOrNone | None,
        meaning("How often a run that is not done when its job ends is started again; default 0."),
    ] = None
    how: Annotated[
        RequeueWay | None,
        meaning("On PBS: the job submits a copy of itself (default), or a chain of jobs is submitted."),
    ] = None
    """PBS does not start a stopped job again by itself. `copy`: when a job begins, it submits a copy of
    itself, which resumes the run if the job ends too soon. `chain`: `castoff submit` submits all jobs at
    once, and each begins if the one before did not succeed; this needs no qsub on the nodes, and also
    resumes after a job was killed."""
    on: Annotated[
        list[RequeueCause] | None,
        meaning("After which endings; default: all that the scheduler supports."),
    ] = None
    """`stop`: the program stopped early (outcome `resume`, or it ended after `signal`). `walltime`: it was
    still running shortly before the walltime, when castoff ends it. `preempted`, `node-failure`: Slurm and
    PBS then start the job again themselves, as often as it happens; name both or neither."""
    progress: Annotated[
        Word | None,
        meaning(
            "What shows progress, as `restart.progress`; default: what the program reports, else a new "
            "checkpoint."
        ),
    ] = None
    """If a program reports nothing, castoff looks in the ranks' folder and the run directory for a newer file
    named like a checkpoint (`*.pt`, `*.ckpt`, `*.safetensors`, `*checkpoint*` …). Files in other runs'
    directories do not count, nor do names that also changed while this run waited in the queue: another job
    writes them. After two attempts in a row without progress, the run is not started again."""

    def causes(self, *, by_scheduler: bool) -> list[RequeueCause]:
        """The endings after which the run is started again; `by_scheduler`: whether the scheduler itself can
        do so.
        """
        if not self.max:
            return []
        every = [cause for cause in get_args(RequeueCause) if by_scheduler or cause not in BY_SCHEDULER]
        return [cause for cause in every if self.on is None or cause in self.on]


class Restart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, repr_omit_defaults=True):
    """Starting the ranks again in the same job: after a rank has failed, a host is lost, or all hang."""

    max: Annotated[
        CountOrNone | None,
        meaning("How often a job restarts its ranks after a failure, in its own allocation; default 0."),
    ] = None
    """Each restart is an attempt with its own logs. castoff does not restart after a stop, a cancellation, an
    exit code in `never`, or a failure with less than `grace` left; in these cases, and after `max` restarts,
    `requeue` applies."""
    spare_nodes: Annotated[
        CountOrNone | None,
        meaning("How many nodes to request beyond `nodes`, to replace hosts that fail; default 0."),
    ] = None
    hang: Annotated[
        Duration | None,
        meaning("After how long without output or progress the ranks count as hung and are ended."),
    ] = None
    """castoff first collects the stacks of all ranks. Set it longer than the program's longest silence."""
    never: Annotated[
        list[ExitCode] | None,
        meaning("Exit codes of the first failed rank that rule out a restart; default [2, 126, 127]."),
    ] = None
    progress: Annotated[
        Word | None,
        meaning(
            "What shows progress: a file or folder that each checkpoint writes, or `none`; default: a "
            "number in CASTOFF_PROGRESS_FILE, or a `step` in CASTOFF_METRICS_FILE, larger than ever before."
        ),
    ] = None
    """Two failed attempts in a row without progress end the job. A program that never reports progress is
    restarted once; with `none`, as often as `max` allows. castoff's trainers report their step."""


class Snapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A copy of the code, taken at the submission."""

    paths: Annotated[
        list[Word], meaning("Only these files and folders; default: everything that git does not ignore.")
    ] = []
    """Relative to where the job is submitted."""
    link: Annotated[
        list[Word],
        meaning("Files that git ignores and the program needs, such as data; linked instead of copied."),
    ] = []
    limit: Annotated[Memory, meaning("Its maximum size; default 256M.")] = "256M"


class Notify(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Messages by webhook or mail, from the job's script or from `castoff watch`."""

    to: Annotated[
        Word | list[Word],
        meaning("Names that `castoff notify add` has given to webhooks, or addresses for mail."),
    ] = []
    """A webhook's URL is a secret, so it never is in a job file. Mail is sent by `castoff watch` only."""
    on: Annotated[
        list[Literal["end", "fail", "hang"]],
        meaning("The events; default `[end, fail]`."),
    ] = msgspec.field(default_factory=lambda: ["end", "fail"])
    """`end`: the run is over, however it ended. `fail`: it failed, or the first member of an array did.
    `hang`: `restart.hang` found a hang."""

    @property
    def receivers(self) -> list[str]:
        """`to` as a list."""
        return [self.to] if isinstance(self.to, str) else list(dict.fromkeys(self.to))


class Mail(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Mail from the scheduler."""

    to: Annotated[Word, meaning("The address.")]
    on: Annotated[list[Literal["begin", "end", "fail"]], meaning("The events.")] = msgspec.field(
        default_factory=lambda: ["end", "fail"]
    )
