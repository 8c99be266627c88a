"""Attempt: the records of one start of a member, read from the attempt's folder."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

from castoff.launcher.runs.directory import names_in
from castoff.launcher.runs.records import Ending, Failure, LastWord, Next, Start, read
from castoff.launcher.runs.run import RESUME, SETTLED
from castoff.launcher.runs.states import AttemptStatus, known_ending
from castoff.launcher.text.excerpt import cause

LAST_WORD = "scheduler.json"
"""The file in an attempt's folder with the scheduler's last word on the attempt."""

REQUEUE_MEMORY = 3600.0
"""Seconds after which no scheduler starts an ended job again, by itself or on request: Slurm has forgotten
the job (after MinJobAge, by default 300 s), and PBS never reruns an ended job.
"""

_KILLED = (137, 143)
"""Exit codes of a process that TERM or KILL has ended; the scheduler may have sent that signal."""


class Attempt(NamedTuple):
    """The records of one start of a member."""

    number: int
    folder: Path
    start: Start | None
    end: Ending | None
    failure: Failure | None
    last: LastWord | None
    next: str | None = None
    """The job that this attempt submitted to resume the run; None: the attempt submitted no job."""
    settled: bool = False
    """Whether the local scheduler has made sure that no process of the attempt is left."""
    requeue: bool = False
    """Whether the local scheduler will begin another attempt after this one."""
    requeues: bool = False
    """Whether the attempt's script asks the scheduler to start the same job again."""
    touched: float = 0.0
    """When the attempt's folder was last changed, if the folder has no record of the start yet;
    otherwise 0.
    """

    @property
    def job(self) -> str | None:
        """The id of the job that the attempt belongs to."""
        if self.start and self.start.job:
            return self.start.job
        return self.last.job if self.last else None

    @property
    def is_active(self) -> bool:
        """Whether the scheduler has queued the attempt's job again, or the script has asked for that."""
        if self.last is not None:
            return self.last.requeued
        return self.end is not None and self.end.ending == "resume" and not self.end.code

    @property
    def is_certain(self) -> bool:
        """Whether the records alone show the attempt's final ending."""
        if self.last is not None:
            return not self.last.requeued
        if self.restarted:
            return True
        return self.end is not None and not (
            self.end.ending == "cancelled" or self.is_active or self.was_killed or self._may_be_requeued
        )

    @property
    def finished(self) -> bool:
        """Whether rank 0, or torchrun, exited with code 0."""
        return any((self.folder / "ended" / name).exists() for name in ("0", "node-0"))

    @property
    def restarted(self) -> bool:
        """Whether the job has restarted its ranks after this attempt, without leaving the allocation."""
        return self.end is not None and self.end.restart

    @property
    def gave_up(self) -> bool:
        """Whether the script asked for a requeue and got no confirmation: the requeue may still happen."""
        return (
            self.requeues
            and self.end is not None
            and (self.end.ending, self.end.code) == ("walltime", RESUME)
        )

    @property
    def _may_be_requeued(self) -> bool:
        ended = self.end.time if self.end and self.end.time else 0.0
        return self.gave_up and time.time() - ended < REQUEUE_MEMORY

    @property
    def was_killed(self) -> bool:
        """Whether the attempt failed by a signal from outside, for example when memory ran out."""
        if self.end is None or self.end.ending != "failed":
            return False
        signal = self.failure.signal if self.failure else None
        return self.end.code in _KILLED or signal in ("SIGKILL", "SIGTERM")

    def status(
        self,
        state: str,
        ending: str | None = None,
        code: int | None = None,
        reason: str | None = None,
        ended: float | None = None,
    ) -> AttemptStatus:
        """Return what users see of the attempt."""
        return AttemptStatus(
            attempt=self.number,
            state=state,
            ending=ending,
            code=code,
            reason=reason,
            host=self.start.host if self.start else None,
            started=self.start.time if self.start else None,
            restart=self.start.restart if self.start else None,
            ended=ended,
            failure=self.failure,
            logs=str(logs_of(self.folder)),
        )

    def by_records(self) -> AttemptStatus:
        """Return what users see of the attempt, from its own records and the scheduler's last word, if
        recorded.
        """
        late = self.end is not None and self.last is not None and self.last.ended_itself
        if self.was_killed and self.last is not None and self.last.ending == "cancelled":
            late = False  # the script recorded a rank that died of the cancelling signal as a failure
        record = self.end if late else self.last or self.end  # a record that appeared late wins
        if record is None:
            return self.status("unknown", "unknown")
        ended = (self.end.time if self.end else None) or record.time
        return self.status("ended", known_ending(record.ending), record.code, record.reason, ended)


def logs_of(folder: Path) -> Path:
    """Return the folder of an attempt's rank logs."""
    return folder.parents[1] / "logs" / folder.name


def attempt_in(number: int, folder: Path, requeues: bool) -> Attempt:
    """Read the records of an attempt.

    Raises:
        CastoffError: a record cannot be read.
    """
    held = {*names_in(folder)}
    following = read(folder / "next.json", Next) if "next.json" in held else None
    start = read(folder / "start.json", Start) if "start.json" in held else None
    return Attempt(
        number,
        folder,
        start,
        read(folder / "ending.json", Ending) if "ending.json" in held else None,
        explained(read(folder / "failure.json", Failure), logs_of(folder))
        if "failure.json" in held
        else None,
        read(folder / LAST_WORD, LastWord) if LAST_WORD in held else None,
        following.job if following else None,
        settled=SETTLED in held,
        requeue="requeue" in held,
        requeues=requeues,
        touched=changed(folder) if start is None else 0.0,
    )


def changed(folder: Path) -> float:
    """Return when a folder was last changed; 0 if it has gone."""
    try:
        return folder.stat().st_mtime
    except OSError:  # it has gone meanwhile
        return 0.0


_NOT_RUN = (126, 127)

_SAYS_WHY = re.compile(
    r"^castoff: no \S+ on this job's PATH|not found|No such file|Permission denied|cannot execute"
    r"|Exec format error|Is a directory|bad interpreter"
)
"""Matches the line of a log in which a shell, env or rank.sh says why a program could not be run."""
_STAGING = re.compile("^castoff: stage: ")
"""Beginning of the lines in which stage.sh reports a failure."""
_FOLDER = re.compile(r"^/\S*/(?=[^/\s]+: )")
"""The folder of a program that writes its path before its message, such as Python or a script's bash."""

_LAST = 64 * 1024
"""The number of bytes at the end of a log that are searched for why a program could not be run."""
_LAST_ERROR = 16 * 1024
"""The number of bytes at the end of a log that are searched for another error: ranks by the thousand fail."""

_SILENT_SIGNALS = ("SIGKILL", "SIGTERM")
"""Signals that end a program before it can write why."""


def explained(failure: Failure | None, logs: Path) -> Failure | None:
    """Return the failure with the line of its log, in the folder `logs`, that shows why: the exception of its
    traceback, or why a program could not be run.
    """
    if failure is None or failure.reason or failure.signal in _SILENT_SIGNALS:
        return failure
    name = failure.log or (None if failure.rank is None else f"rank-{failure.rank:05d}.log")
    if name is None or os.sep in name:
        return failure
    if failure.program == "staging":
        scripts = logs.parent / f"job-{logs.name.partition('.')[0]}.log"
        found = _last_line(logs / name, _STAGING) or _last_line(scripts, _STAGING)
    else:
        found = _last_line(logs / name, _SAYS_WHY) if failure.code in _NOT_RUN else None
        found = found or cause(_end(logs / name, _LAST_ERROR), failure.rank)
    return msgspec.structs.replace(failure, detail=_FOLDER.sub("", found)) if found else failure


def _last_line(log: Path, pattern: re.Pattern[str]) -> str | None:
    lines = _end(log, _LAST).decode(errors="replace").splitlines()
    found = next((line.strip() for line in reversed(lines) if pattern.search(line)), None)
    return found and found.removeprefix("castoff: ").removeprefix("stage: ")


def _end(log: Path, most: int) -> bytes:
    """The last bytes of a log, from the beginning of a line; none if the log cannot be read."""
    try:
        with log.open("rb") as file:
            begin = max(0, file.seek(0, os.SEEK_END) - most)
            file.seek(begin)
            text = file.read(most)
    except OSError:
        return b""
    return text.partition(b"\n")[2] if begin else text
