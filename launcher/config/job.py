"""JobSpec: a job as the user describes it, independent of the scheduler."""

# No `from __future__ import annotations`: msgspec would compile each annotation at every start.

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, get_args

import msgspec

from castoff.launcher.config import batch_script, chunks, parameters, receivers, references
from castoff.launcher.config.array_indices import problem as problem_of_indices
from castoff.launcher.config.checked import Checked, verified
from castoff.launcher.config.job_fields import (
    Array,
    Condition,
    Container,
    Count,
    CountOrNone,
    CpuLists,
    DeviceType,
    Directives,
    Duration,
    EnvName,
    EnvValue,
    LauncherOptions,
    Mail,
    Memory,
    Notify,
    ProgramSignal,
    Requeue,
    Restart,
    Select,
    ShellLine,
    Snapshot,
    Stage,
    Text,
    Word,
)
from castoff.launcher.config.variable_names import variable_problem
from castoff.launcher.errors import InvalidInput, Problem, printable, shown
from castoff.launcher.trust.decision import check_named
from castoff.launcher.typed.document import Document, FieldPath, invalid
from castoff.launcher.typed.structure import meaning, takes
from castoff.launcher.typed.suggestion import setting

COMMAND_LINE = "the command line"
"""The origin of a job that is in no file."""


class JobSpec(Checked, frozen=True, omit_defaults=True, dict=True, kw_only=True):
    """A job as the user describes it, with the fields of a job file. Invalid fields raise InvalidInput.

    None: the site's default applies, or castoff's.
    """

    # dict=True: a job that was read keeps its Document in __dict__ (`source`), so that errors about a site's
    # limits can name the line of the field.

    command: Annotated[
        list[Text], meaning("The program and its arguments; each word reaches the program unchanged.")
    ] = []
    """No shell reads them. For shell syntax, write `[bash, -c, "…"]`. Limits: 131,071 bytes in a word, as on
    Linux, and 991 words with MPICH's mpiexec, which crashes on more."""
    name: Annotated[
        Word | None,
        meaning("The job's name; default: that of the module after -m, the script or the program."),
    ] = None
    nodes: Annotated[
        Count | None, meaning("How many nodes; default 1, or as many as have a device for each of `ranks`.")
    ] = None
    ranks_per_node: Annotated[
        Count | None, meaning("Ranks on each node; default: one per device of the site's nodes, else 1.")
    ] = None
    ranks: Annotated[
        Count | None,
        meaning("Ranks in total, spread as evenly as possible over the nodes; instead of ranks_per_node."),
    ] = None
    cores_per_rank: Annotated[
        Count | None,
        meaning("Physical cores of each rank; default: an equal share of a node whose cores the site lists."),
    ] = None
    """OMP_NUM_THREADS is set to it."""
    devices_per_rank: Annotated[
        CountOrNone | None,
        meaning("Devices (GPUs, tiles) of each rank; 0 requests none. Default: 1 if the site has devices."),
    ] = None
    device_type: Annotated[
        DeviceType | None,
        meaning("The type of the devices, as in `a100`, where nodes have several."),
    ] = None
    """On Slurm two of them become `--gpus-per-node=a100:2`, or what the site's `gpu_request` says; on PBS a
    resource of each chunk, which the site's `device_type_resource` names; on Flux a property of the nodes."""
    binding: Annotated[
        CpuLists | None,
        meaning(
            "The cores of each rank of a node, set by hand; default: chosen by the site and the launcher."
        ),
    ] = None
    """One CPU list per rank, as in `4-7:8-11`. Each CPU must exist on the node and belong to one rank only;
    hardware threads count if the site sets `cpus_per_core`. Each rank gets the device nearest to its cores.
    The job needs whole nodes (`exclusive: true`, unless the site gives whole nodes anyway). srun, PALS and
    all mpiexecs support it; flux run and torchrun do not."""
    memory: Annotated[Memory | None, meaning("Memory of each node.")] = None
    """As in `64G`; K, M, G and T are powers of 1024."""
    walltime: Annotated[Duration | None, meaning("How long the job may run.")] = None
    """As in `"02:00:00"`, `"1-00:00:00"`, `90s`, `30m`, `2h` or `1d12h`."""
    account: Annotated[Word | None, meaning("The project or account that pays.")] = None
    queue: Annotated[Word | None, meaning("The queue (PBS) or partition (Slurm).")] = None
    qos: Annotated[Word | None, meaning("The quality of service (Slurm).")] = None
    constraint: Annotated[Word | None, meaning("Features that the nodes must have (Slurm).")] = None
    reservation: Annotated[Word | None, meaning("A reservation (Slurm; on PBS it is a queue).")] = None
    select: Annotated[
        Select,
        meaning("What each chunk of a PBS job requests beyond cores, ranks, devices and memory."),
    ] = {}
    """For example `{model: mil_ait}`; null removes a resource that the site adds. A list requests chunks of
    several kinds, in this order: each has `nodes` (default 1) and resources, and may set its own
    `ranks_per_node`, `cores_per_rank`, `devices_per_node` and `memory`."""
    exclude: Annotated[Word | None, meaning("Nodes to avoid (Slurm), as in n[1-3].")] = None
    nice: Annotated[int | None, meaning("How far behind other jobs it queues; below 0: ahead of them.")] = (
        None
    )
    """Slurm's `--nice`; on PBS `-p` is its opposite, on Flux the urgency is 16 less it."""
    exclusive: Annotated[bool | None, meaning("Whole nodes, not shared with other jobs.")] = None
    mail: Annotated[Mail | None, meaning("Mail from the scheduler.")] = None
    notify: Annotated[
        Notify | None,
        meaning("Messages to your phone, by webhook or mail, when the run ends, fails or hangs."),
    ] = None
    """An array or a group sends one message when its first member fails, and one when all are over."""
    script: Annotated[
        ShellLine | None,
        meaning("A batch script, in place of `command`: it runs once, on the first host, as it is."),
    ] = None
    """It starts its own ranks, and its first line names its shell. castoff leaves the scheduler's variables
    as they are, sets neither RANK nor OMP_NUM_THREADS, and leaves the output where the scheduler puts it. The
    job's size is what its `directives` for the scheduler ask for; if they ask for none, `nodes`,
    `cores_per_rank` and `devices_per_rank` count, for each node."""
    setup: Annotated[
        list[ShellLine],
        meaning(
            "Shell lines that run once, on the first node, before the ranks: load modules, activate a venv."
        ),
    ] = []
    """They run after the site's own."""
    teardown: Annotated[
        list[ShellLine],
        meaning("Shell lines that run once, on the first node, after the ranks, however these ended."),
    ] = []
    """The site's own run after them. CASTOFF_EXIT_CODE and CASTOFF_OUTCOME hold how the job ended."""
    env: Annotated[
        dict[EnvName, EnvValue],
        meaning("Environment variables of the ranks, set after `setup`; null unsets one."),
    ] = {}
    """They win over what the site and `setup` set. Launchers see them too, but only the ranks' programs get
    those that would change any process, such as LD_PRELOAD, LC_ALL, BASH_ENV or PYTHONHOME. No shell expands
    variables in the values. castoff refuses names that shells reserve, such as UID, RANDOM, IFS or PWD, names
    that begin with `castoff_` or `CASTOFF_`, and more than 131,071 bytes."""
    options: Annotated[
        list[Word],
        meaning("The site's options that this job uses, by name; `castoff sites NAME` lists them."),
    ] = []
    """For example `[proxy]` on Aurora."""
    env_from: Annotated[
        list[EnvName],
        meaning("Secrets: variables of the submitter's environment, passed in a private file."),
    ] = []
    """They never appear in the script. A submitted run keeps them in a file that only you can read, until
    the run is over."""
    inherit: Annotated[
        Literal["none", "all"] | list[EnvName] | None,
        meaning(
            "Which variables of the submitter's environment the job sees; default: none, on this machine all."
        ),
    ] = None
    """Exported shell functions are passed with `all` only."""
    workdir: Annotated[Word | None, meaning("Where the ranks run; default: where the job was submitted.")] = (
        None
    )
    """`~` is your home folder."""
    snapshot: Annotated[
        bool | Snapshot | None,
        meaning("Whether the ranks run in a copy of the code, which later edits do not change."),
    ] = None
    """castoff makes the copy at submission. Default: the ranks run the original, as it is when the job
    starts."""
    python: Annotated[
        Word | None, meaning("The Python interpreter, as an absolute path; its folder comes first on PATH.")
    ] = None
    shell: Annotated[
        Word | None, meaning("The shell of the job's script, as in `/bin/bash -l`; default: the site's.")
    ] = None
    directives: Annotated[
        Directives,
        meaning(
            "Further scheduler directives: null removes one, true is a bare flag, false leaves it out. "
            "Directives under a scheduler's name apply to that scheduler only."
        ),
    ] = {}
    """For example `filesystems: "home:flare"`. null also removes a directive that castoff or the site sets.
    A directive that a field covers, such as `partition` or `mem`, is refused with the name of that field,
    even if abbreviated (`p`, `parti`), so that the site's limits always apply."""
    launcher: Annotated[LauncherOptions, meaning("How the ranks start.")] = LauncherOptions()
    container: Annotated[Container, meaning("The container that each rank's program runs in.")] = Container()
    """Without an image there is none."""
    stage: Annotated[
        list[Stage], meaning("What is copied to each node's own disk before the ranks start.")
    ] = []
    """It goes to CASTOFF_STAGE_DIR."""
    array: Annotated[Array | None, meaning("Runs the job as an array of many members.")] = None
    """Each member has its number in CASTOFF_ARRAY_INDEX."""
    after: Annotated[
        dict[Condition, list[Word]],
        meaning("Runs (by name) or jobs (by scheduler id) to wait for."),
        takes("conditions, each with a list of runs, as in {afterok: [preprocess]}"),
        msgspec.Meta(extra_json_schema={"propertyNames": {"enum": list(get_args(Condition))}}),
    ] = {}
    """With `after`, the job waits until they start; with the others, until they end: successfully
    (`afterok`), unsuccessfully (`afternotok`) or either way (`afterany`). With `aftercorr`, each member of an
    array waits until the same member of the other array ends successfully (Slurm, and on this machine).
    `{NAME.dir}` in the job's texts is the run directory of NAME."""
    requeue: Annotated[Requeue, meaning("Resuming a run that is not done when its job ends.")] = Requeue()
    restart: Annotated[Restart, meaning("Restarting the ranks in the same job after a failure.")] = Restart()
    preflight: Annotated[
        bool | list[ShellLine] | None,
        meaning("Whether castoff checks hosts before ranks start there; shell lines add your own checks."),
    ] = None
    """Default: only with `restart.spare_nodes`. A host must answer, see the run directory, reach the host of
    rank 0, have its devices and memory, space in /dev/shm and on disk, and a correct clock. Your own line
    must fail on a host that is not fit."""
    grace: Annotated[
        Duration | None,
        meaning("How long before the walltime castoff asks the program to stop; default 2m."),
    ] = None
    """Below a walltime of 8 minutes the default is a quarter of it."""
    signal: Annotated[
        ProgramSignal | None,
        meaning("A signal for the ranks' programs, and how long before the walltime they get it."),
    ] = None
    """For programs with a handler that saves a checkpoint. In each rank the outermost process that handles
    the signal gets it; if none does, nothing is sent, as it would kill them. With `requeue`, a program that
    then exits with 0 and writes no outcome is started again."""
    sample_use: Annotated[
        bool,
        meaning(
            "Whether a process on each node records what the job uses: GPUs, CPUs, memory, disk, network."
        ),
    ] = True
    """`castoff status`, `top` and `report` show it."""
    templates: Annotated[Word | None, meaning("A folder of templates that replace castoff's own.")] = None
    """Relative to the job file."""

    @classmethod
    def load(
        cls, path: str | Path | None, *, overrides: Iterable[str] = (), flags: Mapping[str, Any] | None = None
    ) -> "JobSpec":
        """Read a job file. Fields from `flags`, by their paths, win over it, `--set` `overrides` over both.

        Without a file, the flags and overrides are the job.

        Raises:
            CastoffError: the file cannot be read.
            InvalidInput: with every problem of the job.
        """
        if path is not None:
            check_named(Path(path))
        document = Document({}, COMMAND_LINE) if path is None else _only_document(Path(path))
        return cls.read_from(document, overrides=overrides, flags=flags, path=path)

    @classmethod
    def read_from(
        cls,
        document: Document,
        *,
        overrides: Iterable[str] = (),
        flags: Mapping[str, Any] | None = None,
        path: str | Path | None = None,
    ) -> "JobSpec":
        """As `load`, for a document that was read from `path`.

        Raises:
            InvalidInput: with every problem of the job.
        """
        spec = _from_document(document, flags or {}, overrides, path)
        if spec.templates is not None and path is not None:
            # Relative to the job file, not to the working directory.
            spec = msgspec.structs.replace(spec, templates=str(Path(path).parent / spec.templates))
        spec.__dict__["document"] = document
        return spec

    @classmethod
    def of(
        cls, fields: Mapping[str, Any], *, overrides: Iterable[str] = (), origin: str = "job"
    ) -> "JobSpec":
        """A JobSpec from plain data, checked like a job file. `origin`: what errors call it.

        Raises:
            InvalidInput: with every problem.
        """
        return _from_document(Document(dict(fields), origin), {}, overrides)

    @property
    def source(self) -> Document | None:
        """The file and the command line that this job was read from; None for a job made in Python."""
        return self.__dict__.get("document")

    def changed(self, **fields: Any) -> "JobSpec":
        """A job with other values in some fields and the same `source`.

        Raises:
            InvalidInput: with every problem of the new job.
        """
        other = super().changed(**fields)
        other.__dict__.update(self.__dict__)
        return other

    __replace__ = changed

    def _contradictions(self) -> Iterator[tuple[FieldPath, str]]:
        return together(self)


def check(spec: JobSpec) -> Iterator[tuple[FieldPath, str]]:
    """Yield the problems of a job that do not depend on the site, including a missing command."""
    if not spec.command and spec.script is None:
        yield ("command",), "is missing: name the program to run, as in `command: [python, train.py]`"
    yield from together(spec)


def _only_document(path: Path) -> Document:
    """Read a file with a single job."""
    documents = Document.read_all(path)
    if len(documents) > 1 or (
        documents and isinstance(documents[0].data, dict) and "jobs" in documents[0].data
    ):
        several = "holds several jobs; `castoff submit` takes it, and `castoff render` with --only NAME"
        raise invalid(documents[0].origin, several)
    return documents[0] if documents else Document(None, printable(str(path)))


def _from_document(
    document: Document, flags: Mapping[str, Any], overrides: Iterable[str], path: str | Path | None = None
) -> JobSpec:
    if document.data is None:
        document.data = {}
    if not isinstance(document.data, dict):
        message = "is not a job: it holds no fields; `castoff init` writes one to start from"
        raise invalid(document.origin, message)
    for name, value in flags.items():
        field, *inner = name.split(".")
        origin = f"--{field.replace('_', '-')}"
        document.put([field, *inner], Document(value, origin), origin)
    for name, other in (("ranks", "ranks_per_node"), ("ranks_per_node", "ranks")):
        if name in flags and other not in flags:  # --ranks replaces the file's ranks_per_node, and vice versa
            document.data.pop(other, None)
    problems: list[Problem] = []
    for assignment in overrides:
        if (hidden := receivers.hidden_url(assignment)) is not None:
            problems.append(hidden)
            continue
        try:
            document.override(assignment)
        except InvalidInput as error:
            problems.extend(error.problems)
    if isinstance(document.data.get("array"), dict):
        from castoff.launcher.config.parameter_files import read_files  # late: most jobs have no array

        problems += read_files(document, path)
    return verified(document, JobSpec, problems, check)


_LONGEST_WORD = 131_071
"""Limit of an argument, or of `NAME=value` of a variable, in bytes: Linux's MAX_ARG_STRLEN less the NUL at
the end (execve(2)).
"""


def together(spec: JobSpec) -> Iterator[tuple[FieldPath, str]]:
    """Yield the problems of a job that do not depend on the site, except a missing command."""
    if not spec.command:
        pass
    elif not spec.command[0]:
        yield ("command", 0), "is empty: its first word must name the program"
    elif spec.command[0].startswith("-"):
        yield ("command", 0), f"is {shown(spec.command[0])}, which looks like an option: write ./ before it"
    if spec.ranks is not None and spec.ranks_per_node is not None:
        message = "excludes ranks_per_node: give either the total of ranks or the ranks of each node"
        yield ("ranks",), f"{message} (--set ranks_per_node=null clears it)"
    if spec.ranks is not None and spec.ranks < (spec.nodes or 1):
        needed = f"is {spec.ranks} for {spec.nodes} nodes, and each node needs a rank"
        yield ("ranks",), f"{needed}: lower nodes to {spec.ranks}, or raise ranks"
    if spec.array is not None:
        yield from _of_array(spec, spec.array)
    if spec.launcher.driver:
        yield from _beside_a_driver(spec)
    yield from batch_script.problems(spec, spec.script)
    yield from _of_restarts(spec)
    if isinstance(spec.select, list) and spec.select:
        for name in ("nodes", "ranks"):
            if getattr(spec, name) is not None:
                yield (
                    (name,),
                    f"excludes select as a list, in which each kind of chunk has its own number: drop {name}",
                )
    yield from chunks.problems(spec.select)
    if spec.python is not None and not spec.python.startswith("/"):
        yield ("python",), f"is {shown(spec.python)}, but must be absolute: the job has another PATH than you"
    elif spec.python is not None and ":" in str(PurePosixPath(spec.python).parent):
        yield ("python",), f"is {shown(spec.python)}, but PATH cannot contain a folder with a colon"
    for name in spec.env:
        if name in spec.env_from:
            yield ("env", name), "is in env_from too; keep one of the two"
    variables: dict[FieldPath, str] = {("env", name): name for name in spec.env}
    variables |= {("env_from", number): name for number, name in enumerate(spec.env_from)}
    for path, name in variables.items():
        if problem := variable_problem(name):
            yield path, problem
    words: dict[FieldPath, str] = {("command", number): word for number, word in enumerate(spec.command)}
    words |= {("env", name): f"{name}={value}" for name, value in spec.env.items() if value is not None}
    longest = _longest_values(spec.array)
    for path, text in words.items():
        if (size := len(references.filled(text, longest).encode())) > _LONGEST_WORD:
            most = f"is {size:,} bytes long, but Linux passes at most {_LONGEST_WORD:,} to a program"
            yield path, f"{most}: write it to a file, and pass the file's name"
    copied = None if isinstance(spec.snapshot, bool) else spec.snapshot
    for field in ("paths", "link") if copied else ():
        for number, name in enumerate(getattr(copied, field)):
            if name.startswith("/"):
                counts = "counts from where the job is submitted: no / at its beginning"
                yield ("snapshot", field, number), f"is {name!r}, but {counts}"
    if spec.mail is not None and not spec.mail.on:
        yield ("mail", "on"), "is empty: name events (begin, end, fail) or drop mail"
    if spec.notify is not None:
        yield from receivers.problems(spec.notify, spec.restart)
    for condition, names in spec.after.items():
        if not names:
            yield ("after", condition), "is empty: name the runs or job ids to wait for"
    if "aftercorr" in spec.after and spec.array is None:
        pairs = "pairs the members of two arrays, but this job is not an array: write afterok"
        yield ("after", "aftercorr"), pairs


def _longest_values(array: Array | None) -> dict[str, str]:
    """The longest value of each parameter."""
    if array is None or array.parameters is None or any(parameters.problems(array.parameters)):
        return {}
    table = array.table
    return {name: max(table.values_of(name), key=len) for name in table.names} if table else {}


def _of_restarts(spec: JobSpec) -> Iterator[tuple[FieldPath, str]]:
    restart = spec.restart
    for name in ("spare_nodes", "never", "progress"):
        if getattr(restart, name) and not restart.max:
            missing = f"has no effect without restart.max: add {setting('restart.max', '3')}, or drop it"
            yield ("restart", name), missing
    requeue = spec.requeue
    for name in ("on", "progress"):
        if getattr(requeue, name) and not requeue.max:
            missing = f"has no effect without requeue.max: add {setting('requeue.max', '3')}, or drop it"
            yield ("requeue", name), missing
    if requeue.on is not None and not requeue.on:
        yield ("requeue", "on"), "is empty: name endings, as in [stop, walltime], or drop requeue"
    if None not in (restart.progress, requeue.progress) and restart.progress != requeue.progress:
        both = f"is {shown(requeue.progress)}, but restart.progress is {shown(restart.progress)}"
        yield ("requeue", "progress"), f"{both}: they mean the same, so drop one of the two"
    if restart.spare_nodes and isinstance(spec.select, list) and spec.select:
        kinds = "excludes select as a list: a spare node can only replace nodes of its own kind"
        yield ("restart", "spare_nodes"), f"{kinds}; drop one of the two"
    others = {"launcher.driver": spec.launcher.driver, "stage": spec.stage}
    for other in (name for name, value in others.items() if value and restart.spare_nodes):
        yield (
            ("restart", "spare_nodes"),
            f"excludes {other}, whose hosts cannot change after its start: drop one of the two",
        )
    if spec.preflight and spec.launcher.driver:
        yield ("preflight",), "excludes launcher.driver, which starts its own workers: drop one of the two"
    if restart.spare_nodes and spec.preflight is False:
        why = "is false, but restart.spare_nodes needs its checks of hosts"
        yield ("preflight",), f"{why}: drop it"


def _of_array(spec: JobSpec, array: Array) -> Iterator[tuple[FieldPath, str]]:
    if array.commands is not None:
        yield ("array", "commands"), "is a file's name, which only a job file can give: use parameters"
        return
    if array.parameters is not None:
        wrong = [*parameters.problems(array.parameters)]
        yield from ((("array", "parameters", *path), message) for path, message in wrong)
        for name in ("count", "indices"):
            if getattr(array, name) is not None:
                both = "excludes array.parameters, which determine the number of members"
                yield ("array", name), f"{both}; drop one of the two (--set array.{name}=null clears it)"
        if not wrong and (table := array.table):
            yield from references.problems(spec, table)
    elif array.count is None and array.indices is None:
        other = 'or indices: "1,3-5" for numbers of your own, or parameters with their values'
        yield ("array", "count"), f"is missing: write count: 8, {other}"
    elif array.indices is not None and array.count is not None:
        both = "excludes array.count: indices already determine the number of members"
        yield ("array", "indices"), f"{both}; drop one of the two (--set array.count=null clears it)"
    if array.indices is not None and (problem := problem_of_indices(array.indices)):
        yield ("array", "indices"), problem
    if array.shared and array.shared.nodes is not None and array.shared.members is not None:
        both = "excludes nodes: with nodes, one job works through all members"
        yield ("array", "together", "members"), f"{both}; drop one of the two"


def _beside_a_driver(spec: JobSpec) -> Iterator[tuple[FieldPath, str]]:
    """Yield the problems of fields about ranks that contradict `launcher.driver`."""
    launcher = spec.launcher
    values: dict[FieldPath, object] = {("ranks",): spec.ranks, ("ranks_per_node",): spec.ranks_per_node}
    values |= {("binding",): spec.binding, ("launcher", "torchrun"): launcher.torchrun}
    values |= {
        ("launcher", field): getattr(launcher, field) for field in ("name", "args", "timeout", "preload")
    }
    for path, value in values.items():
        if value:
            why = "but with launcher.driver the command is a single process, which starts its own workers"
            yield path, f"is {'true' if value is True else shown(value)}, {why}: drop one of the two"
