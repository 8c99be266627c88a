"""The parts of a job file, and the types of its fields."""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from launcher.config.array_indices import index_list, indices
from launcher.config.quantities import (
    CPULISTS_PATTERN,
    DURATION_PATTERN,
    DURATION_TAKES,
    END,
    MEMORY_PATTERN,
    MEMORY_TAKES,
)
from launcher.typed.structure import meaning, takes


def _scalar(words: str, many: str, pattern: str) -> msgspec.Meta:
    """A text that may also be written as a number, or as true or false."""
    return takes(words, many=many, pattern=f"^{pattern}{END}", extra_json_schema={"x-scalar": True})


Word = Annotated[str, _scalar("one line of text, not empty", "lines of text, none empty", r"[^\x00\n\r]+")]
Text = Annotated[str, _scalar("text", "texts", r"[^\x00]*")]
ShellLine = Annotated[
    str,
    _scalar("a shell line without carriage returns, which Windows adds", "shell lines", r"[^\x00\r]*"),
]
Indices = Annotated[
    str,
    _scalar(
        "numbers and ranges joined by commas, as in 1,3-5,10-20:2",
        "numbers and ranges",
        r"[^\x00\n\r]+",  # `array_indices.problem` says more of the others
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
Count = Annotated[int, takes("a whole number of at least 1", ge=1, le=10_000_000)]
CountOrNone = Annotated[
    int, takes("a whole number of at least 0", many="whole numbers of at least 0", ge=0, le=1_000_000)
]
ExitCode = Annotated[int, takes("an exit code from 1 to 255", many="exit codes from 1 to 255", ge=1, le=255)]
Duration = Annotated[str, takes(DURATION_TAKES, pattern=DURATION_PATTERN)]
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
    takes("names, each with text, true, false or null, and under a scheduler's name those for it alone"),
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
OwnDistribution = Literal["arbitrary", "own"]  # srun's: along a host file, or in another order
RuntimeName = Literal["apptainer", "shifter", "podman-hpc", "pyxis"]
Gpus = Literal["nvidia", "amd", "intel", "none"]
Condition = Literal["after", "afterok", "afternotok", "afterany"]
RequeueWay = Literal["copy", "chain"]


class LauncherOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, repr_omit_defaults=True):
    """How the ranks start."""

    name: Annotated[LauncherName | None, meaning("The launcher, where it is not the site's.")] = None
    torchrun: Annotated[bool, meaning("Start torchrun once on each node; torchrun starts the ranks.")] = False
    """torchrun's own settings are variables, as in `env: {PET_MAX_RESTARTS: "3"}`: a rank counts as
    failed once no restart is left."""
    driver: Annotated[
        bool,
        meaning("Run the command once, on the first host: it starts its own workers on all of them."),
    ] = False
    """As Ray, Dask, Parsl and libEnsemble do. cores_per_rank and devices_per_rank are then those of each
    node, all that a node has by default."""
    args: Annotated[
        list[Word],
        meaning("Further flags for the site's launcher, one word each."),
    ] = []
    """One that binds ranks to cores (`--cpu-bind`, `--bind-to`) replaces castoff's and the site's. srun's
    `--distribution` decides where each rank goes: `cyclic` deals them out node by node, and `arbitrary`
    follows a file with a host for each rank, which `setup` names in SLURM_HOSTFILE."""
    timeout: Annotated[
        Duration | None,
        meaning("How long ranks on several nodes may take to start, before the job is ended; default 10m."),
    ] = None
    """The job then ends as `failed` and names the hosts whose ranks are missing; it warns of them 20 s
    after the start. The time that `setup` and `stage` take does not count. There is no limit in an
    allocation, where ranks may wait for those of another launch, nor with pyxis, which imports the image
    first."""
    preload: Annotated[
        list[ModuleName] | None,
        meaning("Modules that one process of each node imports for all its ranks, as in [torch]."),
    ] = None
    """The ranks start as copies of that process, in a fraction of a second. On one machine the default is
    [torch] if several ranks run a script that imports it; elsewhere it is []."""


class Container(msgspec.Struct, frozen=True, forbid_unknown_fields=True, repr_omit_defaults=True):
    """What each rank's program runs in. Without an image there is no container."""

    image: Annotated[
        Word | None,
        meaning("The image: an absolute path, stage/… for one that `stage` copies, or the runtime's name."),
    ] = None
    runtime: Annotated[RuntimeName | None, meaning("What runs it; a site's `defaults` may name it.")] = None
    binds: Annotated[
        list[Word], meaning("The host's folders inside: PATH, PATH:INSIDE or PATH:INSIDE:ro, absolute.")
    ] = []
    env: Annotated[dict[EnvName, Text], meaning("Variables inside alone, set after `env`.")] = {}
    gpus: Annotated[
        Gpus | None, meaning("Which vendor's GPUs it is given; default: from the site's devices.")
    ] = None
    args: Annotated[list[Word], meaning("Further flags of the runtime, one word each.")] = []


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that is copied to each node's own disk before the ranks start."""

    source: Annotated[
        Word, meaning("A file, a folder or an archive; a relative path starts where the job was submitted.")
    ] = msgspec.field(name="from")
    to: Annotated[
        Word | None,
        meaning("Its place under CASTOFF_STAGE_DIR; default: its name, without the archive's ending."),
    ] = None
    unpack: Annotated[
        bool | None, meaning("Whether to unpack an archive; default: yes, if the name ends as one does.")
    ] = None
    sha256: Annotated[Sha256 | None, meaning("Its SHA-256 sum, checked on each node.")] = None
    activate: Annotated[
        bool,
        meaning("It is an environment: its bin comes first on the ranks' PATH, and conda-unpack is run."),
    ] = False


class Array(msgspec.Struct, frozen=True, forbid_unknown_fields=True, repr_omit_defaults=True):
    """Many members of one job, each with its own CASTOFF_ARRAY_INDEX; it has `count` or `indices`."""

    count: Annotated[Count | None, meaning("How many members, numbered from 0.")] = None
    indices: Annotated[
        Indices | None, meaning("The members' numbers instead: numbers and ranges, as in 1,3-5,10-20:2.")
    ] = None
    """After the colon stands a range's step."""
    max_concurrent: Annotated[Count | None, meaning("How many of them may run at the same time.")] = None
    """On one machine never more than its cores have room for."""

    @property
    def members(self) -> Sequence[int]:
        """Their numbers, ascending."""
        return range(self.count or 1) if self.indices is None else indices(self.indices)

    @property
    def size(self) -> int:
        """How many members."""
        return len(self.members)

    @property
    def own_indices(self) -> str | None:
        """Their numbers as text, where they are not those from 0 on."""
        members = self.members
        return None if members[-1] == len(members) - 1 else index_list(members)

    @property
    def size_words(self) -> str:
        """How many members, as an error about `field` says it."""
        return str(self.size) if self.indices is None else f"{self.indices}, {self.size} members"

    @property
    def field(self) -> str:
        """Which of its fields says how many there are."""
        return "array.count" if self.indices is None else "array.indices"


class Requeue(msgspec.Struct, frozen=True, forbid_unknown_fields=True, repr_omit_defaults=True):
    """Resuming after an early stop."""

    max: Annotated[
        CountOrNone | None,
        meaning("How often a run that ended with the outcome `resume` is started once more; default 0."),
    ] = None
    how: Annotated[
        RequeueWay | None,
        meaning("On PBS: the job submits a copy of itself (default), or a chain of jobs is sent beforehand."),
    ] = None
    """PBS alone starts no job twice. `copy`: a job submits a copy of itself when it begins, which resumes
    if it stops early. `chain`: `castoff submit` sends all jobs beforehand, and each begins if the one
    before did not end well; that needs no qsub on the nodes, and resumes after a job that was killed,
    too."""


class Restart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, repr_omit_defaults=True):
    """Starting the ranks again in the same job: after a rank has failed, a host is lost, or all hang."""

    max: Annotated[
        CountOrNone | None,
        meaning("How often a job starts its ranks again after a failure, in its own allocation; default 0."),
    ] = None
    """Each start is an attempt, with its own logs. It never follows a stop, a cancellation, an exit code
    among `never`, or a failure with less than `grace` left; then, or after so many, `requeue` takes over."""
    spare_nodes: Annotated[
        CountOrNone | None,
        meaning("How many nodes to ask for beyond `nodes`, to replace hosts that fail; default 0."),
    ] = None
    hang: Annotated[
        Duration | None,
        meaning("After how long without any output or progress the ranks count as hung, and are ended."),
    ] = None
    """The stacks of all ranks are collected first. Longer than the program's longest silence."""
    never: Annotated[
        list[ExitCode] | None,
        meaning("Exit codes of the first rank to fail that no restart follows; default [2, 126, 127]."),
    ] = None
    progress: Annotated[
        Word | None,
        meaning(
            "What shows progress: a file or folder that each checkpoint writes, or `none`; default: the "
            "number that the program writes to CASTOFF_PROGRESS_FILE."
        ),
    ] = None
    """Two attempts in a row that fail without progress end the job. A program that never reports any is
    restarted once, unless this is `none`: then as often as `max` says. The trainers report their step."""


class Snapshot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A copy of the code, taken at the submission."""

    paths: Annotated[
        list[Word], meaning("Only these files and folders; default: all that git does not ignore.")
    ] = []
    """Relative to where the job is submitted."""
    link: Annotated[
        list[Word],
        meaning("What git ignores and the program needs, such as data: links that lead to the original."),
    ] = []
    limit: Annotated[Memory, meaning("How large it may be; default 256M.")] = "256M"


class Mail(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Mail from the scheduler."""

    to: Annotated[Word, meaning("The address.")]
    on: Annotated[list[Literal["begin", "end", "fail"]], meaning("The events.")] = msgspec.field(
        default_factory=lambda: ["end", "fail"]
    )
