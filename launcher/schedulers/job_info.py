"""What a scheduler reports about a job, in the same form for every scheduler."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # ranks need this module without msgspec
    from castoff.launcher.runs.records import Usage


class JobInfo(NamedTuple):
    """A scheduler's report on one job, or on one member of an array; times are seconds since the epoch."""

    job: str
    """The job's id; for a member of an array, the array's."""
    task: int | None
    """The member's index in its array; None: the job is not in an array."""
    word: str
    """The job's state, in the scheduler's words."""
    stage: str = "unknown"
    """pending, running, ended, or unknown: castoff does not know the state, so the job may be in any of the
    three.
    """
    ending: str = "unknown"
    """How the job ended, in castoff's terms."""
    ended_itself: bool = False
    """Whether the script ended by itself, so that the script's own record of the ending counts."""
    may_have_been_killed: bool = False
    """Whether the job may have been killed although it seems to have ended well."""
    why: str | None = None
    """The reason for the ending, or the meaning of `word`, if castoff's own term is not enough."""
    cancelled_by: str | None = None
    """The user who cancelled the job, if reported."""
    exit_code: int | None = None
    """The script's exit code, or 128 plus the number of the signal that ended it; None: not reported."""
    was_cancelled: bool = False
    """Whether somebody certainly cancelled the job, even while it waited to start again."""
    was_requeued: bool = False
    """Whether this start of the job was ended in order to requeue the job."""
    dependency_never_satisfied: bool = False
    """Whether the job's dependency can never be satisfied, or could not when the job ended."""
    submitted: float | None = None
    """When the job last entered the queue."""
    start: float | None = None
    """When the job began; for a pending job, when it is expected to begin."""
    end: float | None = None
    pending_reason: str = ""
    """Why the job is pending, in castoff's words and in those of the scheduler."""
    is_held: bool = False
    """Whether the job stays pending until somebody acts."""
    script: str = ""
    """The script's path; arguments may follow, or the path may be the end of a whole submit command."""
    folder: str = ""
    """The folder in which the job was submitted."""

    @property
    def is_active(self) -> bool:
        """Whether the job is pending, running, or in a state that castoff does not know."""
        return self.stage != "ended"

    def runs(self, script: str) -> bool:
        """Whether this job runs `script`, the script in a run directory, whose path identifies the job."""
        return runs_script(self.script, script)


def runs_script(submitted: str, script: str) -> bool:
    """Whether a job's script (see `JobInfo.script`) is `script`, a path in a run directory.

    Only the last two parts of the path count: a run directory may have been moved, but its name is unique.
    """
    name = "/".join(script.rsplit("/", 2)[-2:])
    return submitted == script or submitted.endswith(("/" + name, " " + script))


class JobUsage(NamedTuple):
    """What one start of a job used, as the scheduler's accounting reports it."""

    job: str
    """The job's id; for a member of an array, the array's."""
    task: int | None
    start: float | None
    """When this start began, in seconds since the epoch."""
    usage: Usage


def member_job_id(job: str, index: int | None) -> str:
    """Return the job id of an array's member as the scheduler spells it: `37_3` on Slurm, `7[3].head`
    on PBS.
    """
    if index is None:
        return job
    return job.replace("[]", f"[{index}]", 1) if "[]" in job else f"{job}_{index}"


def whole(text: str | None) -> int | None:
    """Read a whole number; None: the text is not a number, or too long for a count, code or index."""
    return int(text) if text is not None and re.fullmatch(r"\s*-?[0-9]{1,9}\s*", text) else None
