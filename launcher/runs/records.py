"""The records of a run directory, typed: what the scripts, schedulers and starters wrote down.

A record may be half written, damaged, or somebody else's file of that name: what does not fit counts as
not there.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from launcher.runs.run import Run, record_bytes
from launcher.runs.script import head_of, scheduler_of

MOST_MEMBERS = 1_000_000
"""More than any scheduler takes in an array."""

# Bounds that no real record reaches, so that whatever is read can be shown and added up.
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
Code = Annotated[int, msgspec.Meta(ge=0, le=255)]
Number = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]
MemberCount = Annotated[int, msgspec.Meta(ge=1, le=MOST_MEMBERS)]


class Failure(msgspec.Struct, frozen=True):
    """A failure.json: the first rank that failed, by the starter or a shim."""

    code: Code
    rank: Number | None = None
    """None where it was none of the ranks: a node's torchrun itself, or what stages files there."""
    host: str | None = None
    signal: str | None = None
    time: Seconds | None = None
    log: str | None = None
    """The log that tells more, in the folder of the attempt's logs."""


class Start(msgspec.Struct):
    """A start.json, by the script."""

    job: str | None = None
    cluster: str | None = None
    """Slurm's name of the cluster."""
    host: str | None = None
    time: Seconds | None = None


class Ending(msgspec.Struct):
    """An ending.json, by the script or by its scheduler."""

    ending: str
    code: Code
    time: Seconds | None = None
    reason: str | None = None


class Next(msgspec.Struct):
    """A next.json: the job that an attempt has submitted to go on."""

    job: str


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


class Send(msgspec.Struct):
    """One sbatch or qsub of a submission."""

    job: str | None = None
    """None where its answer was none."""
    offset: Number = 0
    """The member that has the index 0."""
    count: Number | None = None
    """Members; None: it is no array."""
    members: list[Number] | None = None
    """Those that it starts; None: as many as `count` says."""
    time: Seconds | None = None
    unclear: str | None = None
    """What sbatch said instead of an answer."""
    asked: Seconds | None = None
    """When the queue was first asked what became of it, and did not know it."""
    error: str | None = None
    """Why it is certain that nothing came of it."""
    link: Number | None = None
    """Which job of a chain it is, that was submitted beforehand."""

    @property
    def is_unclear(self) -> bool:
        """Whether it is not certain that it arrived, nor that it did not."""
        return self.job is None and self.error is None

    def starts(self) -> dict[int, int | None]:
        """The members that it starts, each with its index in the job."""
        if self.members is None and self.count is None:
            return {self.offset: None}
        members = (
            range(self.offset, self.offset + (self.count or 0)) if self.members is None else self.members
        )
        return {member: member - self.offset for member in members}


class Earlier(msgspec.Struct):
    """A submission before the last one."""

    sends: list[Send] = []


class Submission(msgspec.Struct):
    """What is needed of a submission.json."""

    job: str | None = None
    error: str | None = None
    time: Seconds | None = None
    after: dict[str, list[str]] = {}
    """The run directories that it waits for, by condition."""
    begin: dict[int, int] | None = None
    """The members that it starts, and with which attempt; None: all, with their first."""
    sends: list[Send] | None = None
    """What was sent to Slurm or PBS, in order; None where castoff itself is the scheduler."""
    earlier: list[Earlier] = []
    cluster: str | None = None
    """Slurm's name of the cluster that has its jobs; None where it did not say."""


class Facts(msgspec.Struct):
    """What is needed of a plan."""

    name: str = ""
    site: str = ""
    scheduler: str = ""
    array_count: MemberCount | None = None
    walltime: Number | None = None


Record = TypeVar("Record", bound=msgspec.Struct)


def read(path: Path, kind: type[Record]) -> Record | None:
    """A record; None where it is not there, not yet whole, or not such a record.

    Raises:
        CastoffError: it is there and cannot be read.
    """
    data = record_bytes(path)
    if not data:
        return None
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass  # msgspec takes no lone surrogates, in which Python's JSON holds bytes that are no text
    try:
        return msgspec.convert(json.loads(data), kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


_ABOUT = re.compile(r"^# (\S[^\n]*?) on (\S+): ", re.MULTILINE)
_COUNT = re.compile(r"^export CASTOFF_ARRAY_COUNT=([0-9]{1,7})$", re.MULTILINE)


def facts(run: Run) -> Facts:
    """What was planned, by plan.json; by the script where it stood alone and made the directory itself.

    Raises:
        CastoffError: they are there and cannot be read.
    """
    planned = read(run.path / "plan.json", Facts)
    if planned is not None:
        return planned
    text = (record_bytes(run.script) or b"").decode(errors="replace")
    head = head_of(text)
    told = Facts()
    if about := _ABOUT.search(head):
        told.name, told.site = about.groups()
    if text:
        told.scheduler = scheduler_of(text) or "local"
    if (count := _COUNT.search(head)) and int(count[1]) > 1:
        told.array_count = min(int(count[1]), MOST_MEMBERS)
    return told
