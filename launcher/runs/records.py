"""Types of the records in a run directory, which castoff, scripts, schedulers and launchers write.

A record may be incomplete, damaged, or another program's file of the same name. A file that does not fit its
type counts as missing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from castoff.launcher.config.array_indices import INDICES_PATTERN, MOST_MEMBERS, indices
from castoff.launcher.config.quantities import END
from castoff.launcher.errors import CastoffError
from castoff.launcher.process import files
from castoff.launcher.runs.directory import names_in
from castoff.launcher.runs.script import head_of, scheduler_in

# No real record reaches these bounds. They ensure that all values can be printed and added.
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
Code = Annotated[int, msgspec.Meta(ge=0, le=255)]
Number = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
Indices = Annotated[str, msgspec.Meta(pattern=INDICES_PATTERN, max_length=100_000)]
MemberCount = Annotated[int, msgspec.Meta(ge=1, le=MOST_MEMBERS)]


class Failure(msgspec.Struct, frozen=True):
    """failure.json: the first rank that failed, recorded by the launcher or by the rank's shim."""

    code: Code
    rank: Number | None = None
    """None if what failed is not a rank."""
    host: str | None = None
    signal: str | None = None
    time: Seconds | None = None
    log: str | None = None
    """The log with more details, in the folder of the attempt's logs."""
    reason: str | None = None
    """`hang`: nothing failed, but no rank was active; `rank` is then the rank that differs from the others.
    `out-of-memory`: the kernel killed a process for lack of memory on the rank's host.
    """
    detail: str | None = None
    """The line of the log that shows why: the exception of a traceback, or why a program could not be run. It
    is not recorded, but added when the record is read.
    """
    program: str | None = None
    """What failed if it was not a rank: `script`, `driver`, `torchrun` (on one node) or `staging`."""


class Start(msgspec.Struct):
    """start.json, written by the script."""

    job: str | None = None
    cluster: str | None = None
    """Slurm's name of the cluster."""
    host: str | None = None
    time: Seconds | None = None
    restart: Number | None = None
    """Which restart of its job this attempt is, counted from 1; None: the job's first attempt."""


class Ending(msgspec.Struct, omit_defaults=True):
    """ending.json, written by the script or by its scheduler."""

    ending: str
    code: Code
    time: Seconds | None = None
    reason: str | None = None
    restart: bool = False
    """Whether the same job is about to begin another attempt."""


class SetAside(msgspec.Struct, frozen=True):
    """set-aside/HOST.json, written by the script: a host on which the run's jobs start no more ranks."""

    host: str
    reason: str
    attempt: Number
    job: str | None = None
    time: Seconds | None = None


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """usage.json: what an attempt's job used, with all its restarts. A field that is None is not known."""

    source: str
    """The source of the numbers: `sacct`, `qstat`, or `castoff`, which measured every few seconds."""
    elapsed: Seconds | None = None
    cpu_seconds: Seconds | None = None
    """CPU time of all processes of the job, in user and system mode."""
    cpus: Number | None = None
    """The job's CPUs as its scheduler counts them: cores or hardware threads."""
    memory: Bytes | None = None
    """The largest sum of the memory of all processes of the job; shared pages count for each process."""
    memory_requested: Bytes | None = None
    """The sum of the requested memory over all nodes."""
    device_utilization: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    """Mean fraction of the time in which the job's devices computed."""


class Next(msgspec.Struct):
    """next.json: the job that an attempt submitted to resume the run."""

    job: str


class Cancelled(msgspec.Struct):
    """cancelled.json: the jobs that castoff has cancelled, which their scheduler may forget at once, and when
    it did.
    """

    jobs: dict[str, float] = {}


class LastWord(msgspec.Struct, frozen=True):
    """scheduler.json: the scheduler's last answer about an attempt, kept because schedulers forget jobs.

    It exists only if the attempt's own records left a doubt.
    """

    ending: str
    code: Code
    job: str | None = None
    state: str | None = None
    """The scheduler's name for the state."""
    reason: str | None = None
    time: Seconds | None = None
    """When the attempt ended; None if unknown."""
    requeued: bool = False
    """Whether the scheduler has queued the job again since."""
    ended_itself: bool = False
    """Whether the script ended by itself. If so, its own record counts, even if it arrives late."""


class Send(msgspec.Struct, omit_defaults=True):
    """One call of sbatch or qsub in a submission."""

    job: str | None = None
    """The job id; None if the command printed none."""
    offset: Number = 0
    """The member with array index 0."""
    count: Number | None = None
    """The number of members; None: not an array."""
    members: list[Number] | None = None
    """The members that this call starts; None: `count` members from `offset` on."""
    tasks: list[Number] | None = None
    """The scheduler's array indices of `members`; None: each member's number minus `offset`."""
    time: Seconds | None = None
    unclear: str | None = None
    """What the command printed instead of a job id."""
    asked: Seconds | None = None
    """When the queue was first asked about this send and did not list it."""
    error: str | None = None
    """Why it is certain that no job was created."""
    link: Number | None = None
    """The number of this job in a chain of jobs that were submitted in advance."""
    one_job: bool = False
    """Whether `members` share a job that is not an array."""

    def starts(self) -> dict[int, int | None]:
        """The members that this call starts, each with its index in the array; None: not an array."""
        if self.members is None and self.count is None:
            return {self.offset: None}
        if self.members is not None and self.one_job:
            return dict.fromkeys(self.members)
        if self.members is not None and self.tasks is not None:
            return dict(zip(self.members, self.tasks, strict=False))
        members = self.members or range(self.offset, self.offset + (self.count or 0))
        return {member: member - self.offset for member in members}


class Submission(msgspec.Struct, omit_defaults=True, kw_only=True):
    """submission.json: how a run was submitted, last and before."""

    scheduler: str = ""
    directory: str | None = None
    """The folder from which the run was submitted."""
    time: Seconds | None = None
    job: str | None = None
    """The scheduler's job id, the first if there are several; None if the submission failed."""
    error: str | None = None
    """Why the submission failed."""
    after: dict[str, list[str]] = {}
    """The directories of the runs that this run waits for, by condition."""
    group: str | None = None
    """The id of the group with which the run was submitted; None: it was submitted alone."""
    node_hours: float | None = None
    cluster: str | None = None
    """Slurm's name of the cluster that has the run's jobs; None if sbatch did not report it."""
    begin: dict[int, int] | None = None
    """The members that this submission starts, each with its attempt's number; None: all members, attempt 0.
    """
    excluded: list[str] = []
    """Hosts that the run's jobs had set aside, and that the scheduler was asked to avoid."""
    sends: list[Send] = []
    """What was sent to Slurm or PBS, in order; empty if castoff itself is the scheduler."""
    earlier: list[Submission] = []

    @property
    def unclear(self) -> Send | None:
        """The send that may or may not have arrived: always the last, since none follows such a send."""
        last = self.sends[-1] if self.sends else None
        return last if last and last.job is None and last.error is None else None

    @property
    def all_sends(self) -> list[Send]:
        """The sends of this submission and of all earlier ones, in order."""
        return [*(send for submission in self.earlier for send in submission.sends), *self.sends]


class Sharing(msgspec.Struct, frozen=True):
    """How the members of an array share jobs."""

    members: Annotated[int, msgspec.Meta(ge=1, le=MOST_MEMBERS)]
    """The number of members of each job; the last job may have fewer."""
    at_once: Annotated[int, msgspec.Meta(ge=1, le=MOST_MEMBERS)]
    """How many members of a job run side by side."""
    per_node: Annotated[int, msgspec.Meta(ge=1, le=MOST_MEMBERS)]
    """How many members share a node; 1: each has nodes of its own."""
    nodes: Number
    """The number of nodes of each job."""

    def jobs(self, members: int) -> int:
        """The number of jobs that so many members need."""
        return -(-members // self.members)


class Messages(msgspec.Struct, frozen=True):
    """Who gets messages about a run, and when."""

    on: list[str]
    """`end`, `fail` and `hang`, or some of them."""
    to: list[str]
    """Names of webhooks, and mail addresses."""

    @property
    def hooks(self) -> list[str]:
        """The names of webhooks, to which the job's script itself sends."""
        return [name for name in self.to if "@" not in name]


PER_RANK_FILES = 256
"""The largest number of ranks that leave a file each, as more would overload a parallel file system: then the
files grow with the hosts.
"""


class Facts(msgspec.Struct, frozen=True):
    """The part of a plan that is needed after its script has been written."""

    name: str = ""
    site: str = ""
    scheduler: str = ""
    shell: str = "/bin/bash"
    ranks: Number | None = None
    layout: list[tuple[Number, Number]] = []
    """Groups of consecutive nodes, as (ranks on each node, number of nodes)."""
    account: str | None = None
    """None: the scheduler's default account, or no account."""
    queue: str | None = None
    """The queue or partition; None: the scheduler's default, or no queue."""
    held_nodes: Number | None = None
    """The number of nodes of each member's job, including spare ones."""
    launcher: str = ""
    own_distribution: str | None = None
    """How the job's own flags distribute the ranks; `layout` then follows these flags. None: no such flags.
    """
    cores_per_rank: Number | None = None
    devices_per_rank: Number = 0
    array_count: MemberCount | None = None
    array_indices: Indices | None = None
    """The members' indices; None if they count from 0."""
    array_max_concurrent: Number | None = None
    sharing: Sharing | None = None
    """How the members share jobs; None: each member has a job of its own."""
    walltime: Number | None = None
    """In seconds; None: no limit, or not known."""
    submit_timeout: Number = 300
    """Seconds that the submit command may take."""
    poll_interval: Number = 0
    """Minimum seconds between two queries to the scheduler; 0: the site does not set it."""
    requeue_max: Number = 0
    requeue_how: str | None = None
    """`requeue`: the scheduler starts the same job again; `copy`: the job submits a copy of itself; `chain`:
    its successors were submitted in advance; None: nothing starts it again.
    """
    requeue_on: list[str] = []
    """Endings after which the job is started again."""
    inherit: str | list[str] = "all"
    env_from: list[str] = []
    per_rank_logs: bool = True
    notify: Messages | None = None
    """None: nobody gets messages."""
    by_script: bool = False
    """Whether there is no plan: the script was submitted by hand and made the run directory itself."""

    @property
    def members(self) -> Sequence[int]:
        """The members' numbers, ascending; only 0 without an array."""
        return range(self.array_count or 1) if self.array_indices is None else indices(self.array_indices)


def begins(submission: Submission | None, planned: Facts) -> dict[int, int]:
    """The members that the newest submission starts, each with the number of its attempt."""
    if submission and submission.begin is not None:
        return submission.begin
    return dict.fromkeys(planned.members, 0)


_LARGEST_RECORD = 1 << 24
"""Bytes to read of a file; none of castoff's records is larger."""

Record = TypeVar("Record", bound=msgspec.Struct)


def record_bytes(path: Path) -> bytes:
    """Read the first `_LARGEST_RECORD` bytes of a record; none if there is no such file.

    Raises:
        CastoffError: the file exists but cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # so that a pipe in its place does not block
        try:
            return os.read(descriptor, _LARGEST_RECORD)
        finally:
            os.close(descriptor)
    except (FileNotFoundError, NotADirectoryError, BlockingIOError):  # or a pipe that somebody holds open
        return b""
    except OSError as error:
        raise CastoffError(f"{path}: cannot be read: {error.strerror}") from error


def read(path: Path, kind: type[Record]) -> Record | None:
    """Read a record; None if the file is missing, incomplete, or not such a record.

    Raises:
        CastoffError: the file exists but cannot be read.
    """
    return decode(record_bytes(path), kind)


def decode(data: bytes, kind: type[Record]) -> Record | None:
    """Decode a record from JSON; None if it is not such a record."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass  # msgspec refuses lone surrogates, by which Python's JSON represents undecodable bytes
    try:  # a script that shortens a reason may cut a character in two
        import json

        return msgspec.convert(json.loads(data.decode(errors="replace")), kind, str_keys=True)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


SET_ASIDE = "set-aside"
"""The folder in a run directory with a file for each host that the run's jobs have set aside."""

_HOST = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


def set_aside_hosts(run_dir: Path) -> list[SetAside]:
    """The hosts that the run's jobs have set aside, sorted by name.

    Raises:
        CastoffError: their records exist but cannot be read.
    """
    folder = run_dir / SET_ASIDE
    names = sorted(name for name in names_in(folder) if name.endswith(".json"))
    records = (read(folder / name, SetAside) for name in names)
    return [record for record in records if record is not None and _HOST.fullmatch(record.host)]


def ending_of(folder: Path) -> Ending | None:
    """How a member's newest attempt ended; None if it has not ended, or if its job starts the ranks again.

    Raises:
        CastoffError: its record exists but cannot be read.
    """
    ending = read(folder / "ending.json", Ending)
    return None if ending is None or ending.restart else ending


def write(path: Path, record: msgspec.Struct) -> None:
    """Write a record, whole or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    files.replace(path, encode(record) + "\n")


def encode(record: msgspec.Struct, indent: int | None = 2) -> str:
    """Encode a record as JSON, in one line if `indent` is None."""
    separators = None if indent else (",", ":")
    import json  # msgspec refuses lone surrogates

    return json.dumps(msgspec.to_builtins(record), indent=indent, separators=separators)


_ABOUT = r"(?m)^# (\S[^\n]*) on (\S+): "
_COUNT = r"(?m)^export CASTOFF_ARRAY_COUNT=([0-9]{1,7})$"
_SHARING = "(?m)^" + " ".join(
    rf"castoff_{name}=([0-9]{{1,7}})" for name in ("together", "at_once", "job_nodes", "per_node")
)
_INDICES = rf"(?m)^castoff_array_indices=({INDICES_PATTERN[1 : -len(END)]})$"
_MESSAGES = r'(?m)^castoff_notify_on="([a-z ]+)" castoff_notify_to="([\w -]+)"'


def facts_of(text: str) -> Facts:
    """The facts in a script that was submitted by hand and made its run directory itself."""
    head = head_of(text)
    about, count, listed = (re.search(pattern, head) for pattern in (_ABOUT, _COUNT, _INDICES))
    name, site = about.groups() if about else ("", "")
    members = min(int(count[1]), MOST_MEMBERS) if count else 1
    scheduler = scheduler_in(text) or ""
    shared = re.search(_SHARING, head)
    sharing = Sharing(int(shared[1]), int(shared[2]), int(shared[4]), int(shared[3])) if shared else None
    messages = re.search(_MESSAGES, head)
    return Facts(
        name,
        site,
        scheduler,
        array_count=members if members > 1 or listed else None,
        array_indices=listed and listed[1],
        sharing=sharing,
        notify=Messages(messages[1].split(), messages[2].split()) if messages else None,
        by_script=True,
    )
