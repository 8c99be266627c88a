"""JobSpec: what a user asks for, in words that name no scheduler."""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, get_args

import msgspec

from launcher.config.checked import Checked, verified
from launcher.config.job_checks import together
from launcher.config.quantities import (
    CPULISTS_PATTERN,
    DURATION_PATTERN,
    DURATION_TAKES,
    END,
    MEMORY_PATTERN,
    MEMORY_TAKES,
)
from launcher.errors import InvalidInput, Problem
from launcher.trust.decision import check_named
from launcher.typed.document import Document, FieldPath, invalid
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


class Array(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Many members of one job, each with its own CASTOFF_ARRAY_INDEX from 0."""

    count: Annotated[Count, meaning("How many members.")]
    max_concurrent: Annotated[Count | None, meaning("How many of them may run at the same time.")] = None
    """On one machine never more than its cores have room for."""


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


class JobSpec(Checked, frozen=True, omit_defaults=True, dict=True, kw_only=True):
    """What a user asks for: the fields of a job file. A wrong one raises InvalidInput when it is built.

    None: the site's default applies, or castoff's. docs/job-file.md says more of each field.
    """

    # dict=True: a job that was read keeps its Document beside the fields, so that what a site
    # refuses can be said with the line where it stands (`source`).

    command: Annotated[
        list[Text], meaning("The program and its arguments; each word reaches it byte for byte.")
    ] = []
    """No shell reads them. For a shell's services write `[bash, -c, "…"]`."""
    name: Annotated[
        Word | None, meaning("The job's name; default: from the module after -m, the script or the program.")
    ] = None
    nodes: Annotated[Count | None, meaning("How many nodes; default 1.")] = None
    ranks_per_node: Annotated[
        Count | None, meaning("Ranks on each node; default: one per device of the site's nodes, else 1.")
    ] = None
    ranks: Annotated[
        Count | None,
        meaning("Ranks in all, dealt out as evenly as the nodes allow; instead of ranks_per_node."),
    ] = None
    cores_per_rank: Annotated[
        Count | None,
        meaning("Physical cores of each rank; default: a rank's share of the node, where the site knows it."),
    ] = None
    """OMP_NUM_THREADS follows it."""
    devices_per_rank: Annotated[
        CountOrNone | None,
        meaning(
            "Devices (GPUs, tiles) of each rank; 0 asks for none. Default: 1 where the site has devices."
        ),
    ] = None
    binding: Annotated[
        CpuLists | None,
        meaning("The cores of each rank of a node, by hand; default: the site's and the launcher's choice."),
    ] = None
    """One list for each rank, as in `4-7:8-11`, of cores that the node has and no other rank has. The job
    must have its nodes whole (`exclusive: true`, where the site does not see to it). srun, PALS and the
    mpiexecs of MPICH and Intel accept it; with Open MPI or torchrun it is refused, and so is a rank whose
    cores are not beside its device."""
    memory: Annotated[Memory | None, meaning("Memory of each node.")] = None
    """As in `64G`; the units K, M, G and T are powers of 1024."""
    walltime: Annotated[Duration | None, meaning("How long the job may run.")] = None
    """As in `"02:00:00"`, `"1-00:00:00"`, `90s`, `30m`, `2h` or `1d12h`."""
    account: Annotated[Word | None, meaning("The project or account that pays.")] = None
    queue: Annotated[Word | None, meaning("The queue (PBS) or partition (Slurm).")] = None
    qos: Annotated[Word | None, meaning("The quality of service (Slurm).")] = None
    constraint: Annotated[Word | None, meaning("Features that the nodes must have (Slurm).")] = None
    reservation: Annotated[Word | None, meaning("A reservation (Slurm; on PBS it is a queue).")] = None
    exclude: Annotated[Word | None, meaning("Nodes to keep out of (Slurm), as in n[1-3].")] = None
    exclusive: Annotated[bool | None, meaning("Whole nodes, not shared with other jobs.")] = None
    mail: Annotated[Mail | None, meaning("Mail from the scheduler.")] = None
    setup: Annotated[
        list[ShellLine],
        meaning(
            "Shell lines that run once on the first node before the ranks: module loads, a venv's activate."
        ),
    ] = []
    """They come after those of the site."""
    env: Annotated[dict[EnvName, Text], meaning("Variables of the ranks, set after `setup`.")] = {}
    options: Annotated[
        list[Word],
        meaning("The site's options that this job wants, by name; `castoff sites NAME` shows them."),
    ] = []
    """For example `[proxy]` on Aurora."""
    env_from: Annotated[
        list[EnvName],
        meaning("Secrets: variables of the submitter's environment, handed over in a private file."),
    ] = []
    """They are never written into the script. A submitted run keeps them, readable by you alone, until it
    is over."""
    inherit: Annotated[
        Literal["none", "all"] | list[EnvName] | None,
        meaning(
            "What of the submitter's environment the job sees; default none, on the local scheduler all."
        ),
    ] = None
    """Functions that your shell exports come with `all` alone."""
    workdir: Annotated[Word | None, meaning("Where ranks run; default: where the job was submitted.")] = None
    """`~` and `-` mean nothing special in it."""
    snapshot: Annotated[
        bool | Snapshot | None,
        meaning("Whether the ranks run in a copy of the code, so that a job that waits runs no edited code."),
    ] = None
    """It is taken when the job is submitted. Default: the ranks run in the original, as it is when the
    job starts."""
    python: Annotated[
        Word | None, meaning("The Python interpreter, absolute; its folder comes first on PATH.")
    ] = None
    directives: Annotated[
        Directives,
        meaning(
            "Scheduler directives as they are: null removes one, true is a bare flag, false leaves it out. "
            "Directives under slurm or pbs apply to that scheduler only."
        ),
    ] = {}
    """For example `filesystems: "home:flare"`. Null also removes a directive of castoff's or of the
    site's. One that a field covers, such as `partition` or `mem`, is refused with the field's name, also
    where it is shortened (`p`, `parti`): nothing gets past the site's limits."""
    launcher: Annotated[LauncherOptions, meaning("How the ranks start.")] = LauncherOptions()
    container: Annotated[Container, meaning("What each rank's program runs in.")] = Container()
    """Without an image there is no container."""
    stage: Annotated[list[Stage], meaning("What is copied to each node's own disk before ranks start.")] = []
    """They go to CASTOFF_STAGE_DIR."""
    array: Annotated[Array | None, meaning("Many members of this job.")] = None
    """Each finds its number, from 0, in CASTOFF_ARRAY_INDEX."""
    after: Annotated[
        dict[Condition, list[Word]],
        meaning("Runs (by name) or jobs (by scheduler id) to wait for."),
        msgspec.Meta(extra_json_schema={"propertyNames": {"enum": list(get_args(Condition))}}),
    ] = {}
    """With `after` the job waits until they begin, with the others until they end: well (`afterok`),
    badly (`afternotok`) or either way (`afterany`)."""
    requeue: Annotated[Requeue, meaning("Resuming after an early stop.")] = Requeue()
    grace: Annotated[
        Duration | None,
        meaning("How long before the walltime a stop is asked for; default 2m, or a quarter of a short one."),
    ] = None
    """A walltime is short below 8 minutes: of `1m` it is 15 s."""
    templates: Annotated[Word | None, meaning("A folder of templates that win over castoff's own.")] = None
    """Relative to the job file."""

    @classmethod
    def load(
        cls, path: str | Path | None, *, overrides: Iterable[str] = (), flags: Mapping[str, Any] | None = None
    ) -> "JobSpec":
        """Read a job file. Whole fields from `flags` win over it, `--set` `overrides` over both.

        Without a file, the flags and overrides are the job.

        Raises:
            CastoffError: the file cannot be read.
            InvalidInput: with every problem that the job has.
        """
        if path is not None:
            check_named(Path(path))
        document = Document({}, "the command line") if path is None else Document.read(Path(path))
        spec = _from_document(document, flags or {}, overrides)
        if spec.templates is not None and path is not None:
            # Beside the job file, wherever castoff is called from.
            spec = msgspec.structs.replace(spec, templates=str(Path(path).parent / spec.templates))
        spec.__dict__["document"] = document
        return spec

    @classmethod
    def of(cls, fields: Mapping[str, Any], *, overrides: Iterable[str] = ()) -> "JobSpec":
        """A JobSpec from plain data, checked like a job file.

        Raises:
            InvalidInput: with every problem.
        """
        return _from_document(Document(dict(fields), "job"), {}, overrides)

    @property
    def source(self) -> Document | None:
        """The file and the command line that this job was read from; None for one made in Python."""
        return self.__dict__.get("document")

    def changed(self, **fields: Any) -> "JobSpec":
        """A job with other values in some fields, that still knows where it was read.

        Raises:
            InvalidInput: with every problem that it has.
        """
        other = super().changed(**fields)
        other.__dict__.update(self.__dict__)
        return other

    __replace__ = changed

    def _contradictions(self) -> Iterator[tuple[FieldPath, str]]:
        return together(self)


def program_name(command: list[str]) -> str:
    """A job's default name, one that every scheduler takes: of the module after -m, the script, else
    the program.
    """
    words = [word for word in command if word]
    found = PurePosixPath(words[0]).name if words else ""
    for position, word in enumerate(words):
        if word == "-m" and position + 1 < len(words):
            found = words[position + 1].rpartition(".")[2]
            break
        if word.endswith(".py"):
            found = PurePosixPath(word).stem
            break
    name = re.sub(r"[^A-Za-z0-9_.+-]", "_", found)[:60]
    return name if name[:1].isalpha() else "-".join(["job", name.strip("._+-")]).strip("-")


def check(spec: JobSpec) -> Iterator[tuple[FieldPath, str]]:
    """What is wrong with a job whatever the site: fields that exclude each other or lack another."""
    if not spec.command:
        yield ("command",), "is missing: name the program to run, as in command: [python, train.py]"
    yield from together(spec)


def _from_document(document: Document, flags: Mapping[str, Any], overrides: Iterable[str]) -> JobSpec:
    if document.data is None:
        document.data = {}
    if not isinstance(document.data, dict):
        message = "is not a job: it holds no fields; `castoff init` writes one to start from"
        raise invalid(document.origin, message)
    for name, value in flags.items():
        origin = f"--{name.replace('_', '-')}"
        document.put([name], Document(value, origin), origin)
    problems: list[Problem] = []
    for assignment in overrides:
        try:
            document.override(assignment)
        except InvalidInput as error:
            problems.extend(error.problems)
    return verified(document, JobSpec, problems, check)
