"""What a scheduler reports about a job, in the same form for every scheduler."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # ranks need the rest, without msgspec
    from castoff.launcher.runs.records import Usage


class JobInfo(NamedTuple):
    """What a scheduler says of one job, or of one of an array's; times are seconds since the epoch."""

    job: str
    """Its id; an array's own, whichever of its jobs this is."""
    task: int | None
    """Its index in the array; None if it is in none."""
    word: str
    """Its state in the scheduler's word."""
    stage: str = "unknown"
    """pending, running or ended; unknown: its word does not say, so it may be any of these."""
    ending: str = "unknown"
    """What became of it, in castoff's word."""
    ended_itself: bool = False
    """Whether its script ended by itself, and so had the last word."""
    may_have_been_killed: bool = False
    """Whether it may have been killed, though it looks as if it ended well."""
    why: str | None = None
    """Why it ended so, or what its word means, where that is more than castoff's word for it says."""
    cancelled_by: str | None = None
    """The user who cancelled it, where that is reported."""
    exit_code: int | None = None
    """Its script's code, or 128 and the number of the signal that ended it; None: not reported."""
    was_cancelled: bool = False
    """Whether somebody cancelled it for certain, also while it waited to start again."""
    was_requeued: bool = False
    """Whether this start of it was ended to queue it again."""
    dependency_never_satisfied: bool = False
    """Whether what it waits for can no longer be, or could not when it ended."""
    submitted: float | None = None
    """Since when it is in the queue: of one that was queued again, since then."""
    start: float | None = None
    """When it began; of a job that waits, when it might."""
    end: float | None = None
    pending_reason: str = ""
    """Why it waits, in plain words, and with the scheduler's own."""
    is_held: bool = False
    """Whether it waits until somebody does something."""
    script: str = ""
    """Its script's path, with its arguments or as the end of the command that submitted it."""
    folder: str = ""
    """Where it was submitted."""

    @property
    def is_active(self) -> bool:
        """Whether it waits or runs, or may, in a state that castoff does not know."""
        return self.stage != "ended"

    def runs(self, script: str) -> bool:
        """Whether this job runs `script`, the script in a run directory; that path identifies the job."""
        return runs_script(self.script, script)


def runs_script(submitted: str, script: str) -> bool:
    """Whether a path, with its arguments or as the end of a command, is that of a script in a run directory.

    A run directory that was moved since keeps its name, which no other has.
    """
    name = "/".join(script.rsplit("/", 2)[-2:])
    return submitted == script or submitted.endswith(("/" + name, " " + script))


class JobUsage(NamedTuple):
    """What a scheduler's accounting says that one start of a job used."""

    job: str
    """Its id; an array's own, whichever of its jobs this is."""
    task: int | None
    start: float | None
    """When it began, in seconds since the epoch."""
    usage: Usage


def member_job_id(job: str, index: int | None) -> str:
    """The id of one job of an array in its scheduler's own spelling: `37_3`, PBS's `7[3].head`."""
    if index is None:
        return job
    return job.replace("[]", f"[{index}]", 1) if "[]" in job else f"{job}_{index}"


def whole(text: str | None) -> int | None:
    """A whole number of an answer; None: it has none, or one that no count, code or index can be."""
    return int(text) if text is not None and re.fullmatch(r"\s*-?[0-9]{1,9}\s*", text) else None
