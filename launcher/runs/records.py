"""The records of a run directory, typed: what castoff, its scripts, schedulers and launchers wrote down.

A record may be half written, damaged, or somebody else's file of that name: what does not fit counts as
not there.
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

# Bounds that no real record reaches, so that whatever is read can be shown and added up.
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
Code = Annotated[int, msgspec.Meta(ge=0, le=255)]
Number = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=1 << 60)]
Indices = Annotated[str, msgspec.Meta(pattern=INDICES_PATTERN, max_length=100_000)]
MemberCount = Annotated[int, msgspec.Meta(ge=1, le=MOST_MEMBERS)]


class Failure(msgspec.Struct, frozen=True):
    """A failure.json: the first rank that failed, by the launcher or a shim."""

    code: Code
    rank: Number | None = None
    """None where it was no rank."""
    host: str | None = None
    signal: str | None = None
    time: Seconds | None = None
    log: str | None = None
    """The log that shows more, in the folder of the attempt's logs."""
    reason: str | None = None
    """`hang`: nothing failed, and nothing showed any sign of life; the rank is the one that differs.
    `out-of-memory`: the kernel killed for want of memory where this rank ran."""
    detail: str | None = None
    """Why its program could not be run, by its log; in no record, but added where one is read."""
    program: str | None = None
    """What failed where it was no rank: `script`, `driver`, `torchrun` (a node's own) or `staging`."""


class Start(msgspec.Struct):
    """A start.json, by the script."""

    job: str | None = None
    cluster: str | None = None
    """Slurm's name of the cluster."""
    host: str | None = None
    time: Seconds | None = None
    restart: Number | None = None
    """Which restart of its job this is, counted from 1; None: the job's first attempt."""


class Ending(msgspec.Struct, omit_defaults=True):
    """An ending.json, by the script or by its scheduler."""

    ending: str
    code: Code
    time: Seconds | None = None
    reason: str | None = None
    restart: bool = False
    """Whether the same job is about to begin another attempt."""


class SetAside(msgspec.Struct, frozen=True):
    """A set-aside/HOST.json, by the script: a host that gets no ranks of a job any more."""

    host: str
    reason: str
    attempt: Number
    job: str | None = None
    time: Seconds | None = None


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A usage.json: what an attempt's job used, all its restarts together. None: it is not known."""

    source: str
    """What says so: `sacct`, `qstat`, or `castoff`, which looked every few seconds."""
    elapsed: Seconds | None = None
    cpu_seconds: Seconds | None = None
    """Of all its processes, in user and system mode."""
    cpus: Number | None = None
    """The CPUs that it had, as its scheduler counts them: cores or hardware threads."""
    memory: Bytes | None = None
    """The most that its processes had in memory at a time, on all nodes; pages that several have count for
    each."""
    memory_requested: Bytes | None = None
    """On all nodes."""
    device_utilization: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    """Mean fraction of the time in which its devices computed."""


class Next(msgspec.Struct):
    """A next.json: the job that an attempt has submitted to resume it."""

    job: str


class Cancelled(msgspec.Struct):
    """A cancelled.json: the jobs that castoff has had its scheduler end, which may forget them at once."""

    jobs: list[str] = []


class LastWord(msgspec.Struct, frozen=True):
    """A scheduler.json: what became of an attempt by its scheduler's last word, which outlives its memory.

    It is there only where the attempt's own records were in doubt.
    """

    ending: str
    code: Code
    job: str | None = None
    state: str | None = None
    """In the scheduler's word."""
    reason: str | None = None
    time: Seconds | None = None
    """When it ended; None where that is not known."""
    requeued: bool = False
    """Whether the scheduler has queued the job again since."""
    ended_itself: bool = False
    """Whether its script ended by itself, whose own record counts more if it comes late."""


class Send(msgspec.Struct, omit_defaults=True):
    """One sbatch or qsub of a submission."""

    job: str | None = None
    """None where its answer was none."""
    offset: Number = 0
    """The member that has the index 0."""
    count: Number | None = None
    """Members; None: not an array."""
    members: list[Number] | None = None
    """Those that it starts; None: as many as `count` says."""
    tasks: list[Number] | None = None
    """The scheduler's indices of these `members`; None: their numbers from `offset` on."""
    time: Seconds | None = None
    unclear: str | None = None
    """What sbatch said instead of an answer."""
    asked: Seconds | None = None
    """When the queue was first asked what became of it, and did not know it."""
    error: str | None = None
    """Why it is certain that nothing came of it."""
    link: Number | None = None
    """Which job of a chain it is, that was submitted beforehand."""

    def starts(self) -> dict[int, int | None]:
        """The members that it starts, each with its index in the job."""
        if self.members is None and self.count is None:
            return {self.offset: None}
        if self.members is not None and self.tasks is not None:
            return dict(zip(self.members, self.tasks, strict=False))
        members = self.members or range(self.offset, self.offset + (self.count or 0))
        return {member: member - self.offset for member in members}


class Submission(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A submission.json: how a run was submitted, last and before."""

    scheduler: str = ""
    directory: str | None = None
    """Where it was submitted."""
    time: Seconds | None = None
    job: str | None = None
    """The scheduler's id, the first one's if it took several; None where it did not come about."""
    error: str | None = None
    """Why it did not."""
    after: dict[str, list[str]] = {}
    """The run directories that it waits for, by condition."""
    node_hours: float | None = None
    cluster: str | None = None
    """Slurm's name of the cluster that has its jobs; None where it did not say."""
    begin: dict[int, int] | None = None
    """The members that it starts, and with which attempt; None: all, with their first."""
    excluded: list[str] = []
    """Hosts that jobs of the run had set aside, and that its scheduler was asked to keep it out of."""
    sends: list[Send] = []
    """What was sent to Slurm or PBS, in order; nothing where castoff itself is the scheduler."""
    earlier: list[Submission] = []

    @property
    def unclear(self) -> Send | None:
        """The send that may or may not have arrived; the last, for none follows before that is certain."""
        last = self.sends[-1] if self.sends else None
        return last if last and last.job is None and last.error is None else None

    @property
    def all_sends(self) -> list[Send]:
        """The sends of this submission and of all before, in order."""
        return [*(send for one in self.earlier for send in one.sends), *self.sends]


class Facts(msgspec.Struct, frozen=True):
    """The part of a plan that is still needed once its script is written."""

    name: str = ""
    site: str = ""
    scheduler: str = ""
    shell: str = "/bin/bash"
    ranks: Number | None = None
    layout: list[tuple[Number, Number]] = []
    """(ranks on a node, how many such nodes in a row)."""
    account: str | None = None
    """None: the scheduler's default, or none."""
    queue: str | None = None
    """The queue or partition; None: the scheduler's default, or none."""
    held_nodes: Number | None = None
    """The nodes of each member's job, spare ones included."""
    launcher: str = ""
    own_distribution: str | None = None
    """Whether the job's own flags say where each rank starts; `layout` is then what they ask for."""
    cores_per_rank: Number | None = None
    array_count: MemberCount | None = None
    array_indices: Indices | None = None
    """The members' indices, unless they simply count from 0."""
    array_max_concurrent: Number | None = None
    walltime: Number | None = None
    """Seconds."""
    submit_timeout: Number = 300
    """Seconds that the submit command may take."""
    poll_interval: Number = 0
    """Seconds between two questions to the scheduler, at least; 0: its site did not say."""
    requeue_max: Number = 0
    requeue_how: str | None = None
    """`requeue`: the scheduler starts the same job again; `copy`: the job submits a copy of itself; `chain`:
    jobs that were submitted beforehand follow it; None: nobody starts it again."""
    requeue_on: list[str] = []
    """After which endings it is started again."""
    inherit: str | list[str] = "all"
    env_from: list[str] = []
    per_rank_logs: bool = True
    by_script: bool = False
    """Whether there is no plan, and the script records this: it stood alone and made the directory itself."""

    @property
    def members(self) -> Sequence[int]:
        """The members' numbers, ascending; 0 alone where there is no array."""
        return range(self.array_count or 1) if self.array_indices is None else indices(self.array_indices)


def begins(submission: Submission | None, planned: Facts) -> dict[int, int]:
    """The members that the newest submission starts, and with which attempt."""
    if submission and submission.begin is not None:
        return submission.begin
    return dict.fromkeys(planned.members, 0)


_LARGEST_RECORD = 1 << 24
"""Bytes that are read of a file; a larger one is not a record of ours."""

Record = TypeVar("Record", bound=msgspec.Struct)


def record_bytes(path: Path) -> bytes:
    """What a record holds, or its beginning; nothing if it is not there.

    Raises:
        CastoffError: it is there and cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe in its place is not waited for
        try:
            return os.read(descriptor, _LARGEST_RECORD)
        finally:
            os.close(descriptor)
    except (FileNotFoundError, NotADirectoryError, BlockingIOError):  # or a pipe that somebody holds open
        return b""
    except OSError as error:
        raise CastoffError(f"{path}: cannot be read: {error.strerror}") from error


def read(path: Path, kind: type[Record]) -> Record | None:
    """A record; None where it is not there, not yet whole, or not such a record.

    Raises:
        CastoffError: it is there and cannot be read.
    """
    return decode(record_bytes(path), kind)


def decode(data: bytes, kind: type[Record]) -> Record | None:
    """A record of JSON; None where it is not one."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass  # msgspec takes no lone surrogates, in which Python's JSON holds bytes that are not text
    try:  # a script that shortens a reason may cut a letter in two
        import json

        return msgspec.convert(json.loads(data.decode(errors="replace")), kind, str_keys=True)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


SET_ASIDE = "set-aside"
"""The folder of hosts that jobs of a run have set aside, in its directory."""

_HOST = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


def set_aside_hosts(run_dir: Path) -> list[SetAside]:
    """The hosts that jobs of a run have set aside, by name.

    Raises:
        CastoffError: their records are there and cannot be read.
    """
    folder = run_dir / SET_ASIDE
    names = sorted(name for name in names_in(folder) if name.endswith(".json"))
    found = (read(folder / name, SetAside) for name in names)
    return [one for one in found if one is not None and _HOST.fullmatch(one.host)]


def ending_of(folder: Path) -> Ending | None:
    """How the newest attempt of a member ended; None while it has not, or its job starts the ranks again.

    Raises:
        CastoffError: its record is there and cannot be read.
    """
    found = read(folder / "ending.json", Ending)
    return None if found is None or found.restart else found


def write(path: Path, record: msgspec.Struct) -> None:
    """Write a record, whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    files.replace(path, encode(record) + "\n")


def encode(record: msgspec.Struct, indent: int | None = 2) -> str:
    """A record as text: in one line without `indent`. Python's JSON, for msgspec takes no lone surrogates."""
    separators = None if indent else (",", ":")
    import json

    return json.dumps(msgspec.to_builtins(record), indent=indent, separators=separators)


_ABOUT = r"(?m)^# (\S[^\n]*) on (\S+): "
_COUNT = r"(?m)^export CASTOFF_ARRAY_COUNT=([0-9]{1,7})$"
_INDICES = rf"(?m)^castoff_array_indices=({INDICES_PATTERN[1 : -len(END)]})$"


def facts_of(text: str) -> Facts:
    """What a script records that stood alone, and made the run directory itself."""
    head = head_of(text)
    about, count, own = (re.search(one, head) for one in (_ABOUT, _COUNT, _INDICES))
    name, site = about.groups() if about else ("", "")
    members = min(int(count[1]), MOST_MEMBERS) if count else 1
    scheduler = scheduler_in(text) or ""
    return Facts(
        name,
        site,
        scheduler,
        array_count=members if members > 1 or own else None,
        array_indices=own and own[1],
        by_script=True,
    )
