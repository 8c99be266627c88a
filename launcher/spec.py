"""JobSpec: what a user asks for, in words that name no scheduler."""

# No `from __future__ import annotations` here: msgspec would compile each of them at every start.

import copy
import re
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, get_args

import msgspec

from launcher.document import Document, FieldPath, dotted
from launcher.errors import InvalidInput, Problem
from launcher.quantities import DURATION_PATTERN, DURATION_TAKES, END, MEMORY_PATTERN, MEMORY_TAKES
from launcher.structure import convert_valid, meaning, takes

_SCALAR = {"x-scalar": True}
"""Marks what `job_schema` lets be a number too."""

Word = Annotated[
    str,
    takes(
        "one line of text, not empty",
        many="lines of text, none empty",
        pattern=rf"^[^\x00\n\r]+{END}",
        extra_json_schema=_SCALAR,
    ),
]
Text = Annotated[str, takes("text", many="texts", pattern=rf"^[^\x00]*{END}", extra_json_schema=_SCALAR)]
ShellLine = Annotated[
    str,
    takes(
        "a shell line without carriage returns, which Windows adds",
        many="shell lines",
        pattern=rf"^[^\x00\r]*{END}",
        extra_json_schema=_SCALAR,
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
CountOrNone = Annotated[int, takes("a whole number of at least 0", ge=0, le=1_000_000)]
Duration = Annotated[str, takes(DURATION_TAKES, pattern=DURATION_PATTERN)]
Memory = Annotated[str, takes(MEMORY_TAKES, pattern=MEMORY_PATTERN)]
DirectiveName = Annotated[
    str,
    takes("a directive's name (letters, digits, - and _)", pattern=rf"^[A-Za-z][A-Za-z0-9_-]*{END}"),
]
StarterName = Literal["srun", "pals", "hydra", "intelmpi", "openmpi", "local"]
Condition = Literal["after", "afterok", "afternotok", "afterany"]


_OURS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")


class Start(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the ranks start."""

    starter: Annotated[
        StarterName | None,
        meaning("What starts the processes, where it is not the site's own choice."),
    ] = None
    torchrun: Annotated[bool, meaning("Start torchrun once on every node, and let it start the ranks.")] = (
        False
    )
    args: Annotated[
        list[Word],
        meaning("Further flags, each one word, for the starter of the site that the job is meant for."),
    ] = []


class Array(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Many members of one job, each with its own CASTOFF_ARRAY_INDEX from 0."""

    count: Annotated[Count, meaning("How many members.")]
    at_most: Annotated[Count | None, meaning("How many of them may run at the same time.")] = None


class Requeue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Going on after an early stop."""

    max: Annotated[
        CountOrNone,
        meaning("How often a run that ended with the outcome `again` is started once more."),
    ] = 0


class Mail(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Mail from the scheduler."""

    to: Annotated[Word, meaning("The address.")]
    on: Annotated[list[Literal["begin", "end", "fail"]], meaning("The events.")] = msgspec.field(
        default_factory=lambda: ["end", "fail"]
    )


class JobSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """What a user asks for. Portable: no field names a scheduler's flag but `directives`.

    A field that is None was not asked for: the site's default or castoff's own applies.
    """

    # dict=True: a job that was read keeps its Document beside the fields, so that what a site
    # refuses can be said with the line where it stands (`source`).

    command: Annotated[
        list[Text], meaning("The program and its arguments; each word reaches it byte for byte.")
    ] = []
    name: Annotated[Word | None, meaning("The job's name; default: the program's.")] = None
    nodes: Annotated[Count | None, meaning("How many nodes; default 1.")] = None
    ranks_per_node: Annotated[
        Count | None,
        meaning("Ranks on each node; default: one per device of the site's nodes, else 1."),
    ] = None
    ranks: Annotated[
        Count | None,
        meaning("Ranks in all, dealt out as evenly as the nodes allow; instead of ranks_per_node."),
    ] = None
    cores_per_rank: Annotated[
        Count | None,
        meaning("Physical cores of each rank; default: a rank's share of the node, where the site knows it."),
    ] = None
    devices_per_rank: Annotated[
        CountOrNone | None,
        meaning(
            "Devices (GPUs, tiles) of each rank; 0 asks for none. Default: 1 where the site has devices."
        ),
    ] = None
    memory: Annotated[Memory | None, meaning("Memory of each node.")] = None
    walltime: Annotated[Duration | None, meaning("How long the job may run.")] = None
    account: Annotated[Word | None, meaning("The project or account that pays.")] = None
    queue: Annotated[Word | None, meaning("The queue (PBS) or partition (Slurm).")] = None
    qos: Annotated[Word | None, meaning("The quality of service (Slurm).")] = None
    constraint: Annotated[Word | None, meaning("Features that the nodes must have (Slurm).")] = None
    reservation: Annotated[
        Word | None, meaning("A reservation to run in (Slurm; on PBS a reservation is a queue).")
    ] = None
    exclude: Annotated[
        Word | None, meaning("Nodes to keep out of (Slurm), as a host list such as n[1-3].")
    ] = None
    exclusive: Annotated[bool | None, meaning("Whole nodes, shared with nobody.")] = None
    mail: Annotated[Mail | None, meaning("Mail from the scheduler.")] = None
    setup: Annotated[
        list[ShellLine],
        meaning(
            "Shell lines that run once on the first node before the ranks: module loads, a venv's activate."
        ),
    ] = []
    env: Annotated[
        dict[EnvName, Text], meaning("Environment variables of the ranks, set after `setup`.")
    ] = {}
    env_from: Annotated[
        list[EnvName],
        meaning("Secrets: variables of the submitter's environment, handed over in a private file."),
    ] = []
    inherit: Annotated[
        Literal["none", "all"] | list[EnvName] | None,
        meaning(
            "What of the submitter's environment the job sees; default none, on the local scheduler all."
        ),
    ] = None
    workdir: Annotated[Word | None, meaning("Where the ranks run; default: where the job was submitted.")] = (
        None
    )
    python: Annotated[
        Word | None, meaning("The Python interpreter, absolute; its folder comes first on PATH.")
    ] = None
    directives: Annotated[
        dict[DirectiveName, Word | bool | None],
        meaning(
            "Scheduler directives as they are: null removes one, true is a bare flag, false leaves it out."
        ),
    ] = {}
    start: Annotated[Start, meaning("How the ranks start.")] = Start()
    array: Annotated[Array | None, meaning("Many members of this job.")] = None
    after: Annotated[
        dict[Condition, list[Word]],
        meaning("Runs (by name) or jobs (by scheduler id) to wait for."),
        msgspec.Meta(extra_json_schema={"propertyNames": {"enum": list(get_args(Condition))}}),
    ] = {}
    requeue: Annotated[Requeue, meaning("Going on after an early stop.")] = Requeue()
    grace: Annotated[
        Duration | None, meaning("How long before the walltime a stop is asked for; default 2m.")
    ] = None
    templates: Annotated[
        Word | None,
        meaning("A folder of Jinja templates that win over castoff's own, block by block."),
    ] = None

    @classmethod
    def load(
        cls,
        path: str | Path | None,
        *,
        overrides: Iterable[str] = (),
        flags: Mapping[str, Any] | None = None,
    ) -> "JobSpec":
        """Read a job file. Whole fields from `flags` win over it, `--set` `overrides` over both.

        Without a file, the flags and overrides are the job.

        Raises:
            CastoffError: the file cannot be read.
            InvalidInput: with every problem that the job has.
        """
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
        return _from_document(Document(copy.deepcopy(dict(fields)), "job"), {}, overrides)

    @property
    def source(self) -> Document | None:
        """The file and the command line that this job was read from; None for one made in Python."""
        return self.__dict__.get("document")


def job_schema() -> dict[str, Any]:
    """The JSON schema of job files.

    Where a field takes text, an editor that sees `1e-3` or `true` without quotes must let it stand:
    we read it as it is written.
    """
    schema = msgspec.json.schema(JobSpec)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    _widen(schema)
    return schema


def _widen(schema: Any) -> None:
    for part in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(part, (dict, list)):
            _widen(part)
    if isinstance(schema, dict) and schema.pop("x-scalar", False) and "type" in schema:
        schema["type"] = ["string", "number", "boolean"]


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


def check(spec: JobSpec, where: Document | None = None) -> list[Problem]:
    """What is wrong with a job whatever the site: fields that exclude each other or lack another."""
    document = where or Document({}, "job")
    problems: list[Problem] = []

    def report(path: FieldPath, message: str) -> None:
        problems.append(Problem(document.where(path), dotted(path), message))

    if not spec.command:
        report(("command",), "is missing: name the program to run, as in command: [python, train.py]")
    elif not spec.command[0]:
        report(("command", 0), "is empty: the first word names the program")
    if spec.ranks is not None and spec.ranks_per_node is not None:
        report(
            ("ranks",),
            "excludes ranks_per_node: give the ranks in all or those of a node, not both "
            "(--set ranks_per_node=null clears it)",
        )
    if spec.ranks is not None and spec.ranks < (spec.nodes or 1):
        report(
            ("ranks",),
            f"is {spec.ranks} for {spec.nodes} nodes, and each node needs a rank: "
            f"lower nodes to {spec.ranks}, or raise ranks",
        )
    if spec.python is not None and not spec.python.startswith("/"):
        report(("python",), f"is {spec.python!r}, but must be absolute: the job's PATH is not yours")
    for name in spec.env:
        if name in spec.env_from:
            report(("env", name), "stands in env_from too; keep the one you mean")
        if name in _OURS or name.startswith("CASTOFF_"):
            report(("env", name), "is what castoff tells each rank itself; drop it here")
    if spec.mail is not None and not spec.mail.on:
        report(("mail", "on"), "is empty: name events (begin, end, fail) or drop mail")
    for condition, names in spec.after.items():
        if not names:
            report(("after", condition), "is empty: name the runs or job ids to wait for")
    return problems


def _from_document(document: Document, flags: Mapping[str, Any], overrides: Iterable[str]) -> JobSpec:
    if document.data is None:
        document.data = {}
    if not isinstance(document.data, dict):
        message = "is not a job: it holds no fields; `castoff init` writes one to start from"
        raise InvalidInput([Problem(document.origin, "", message)])
    for name, value in flags.items():
        origin = f"--{name.replace('_', '-')}"
        document.put([name], Document(value, origin), origin)
    problems: list[Problem] = []
    for assignment in overrides:
        try:
            document.override(assignment)
        except InvalidInput as error:
            problems.extend(error.problems)
    spec = convert_valid(document, JobSpec, problems)
    wrong = {problem.path.partition(".")[0] for problem in problems}
    if spec is not None:  # what a wrong field makes of the others is not worth a word
        found = check(spec, document)
        problems += [problem for problem in found if problem.path.partition(".")[0] not in wrong]
    if spec is None or problems:
        raise InvalidInput(problems)
    return spec
