"""What PBS says of jobs: the questions, how its answers are read, and what its words mean.

One qstat tells of jobs that wait, run and, where the server keeps a history, have ended (qstat(1B),
qselect(1B), pbs_job_attributes(7B) of OpenPBS 23; exit codes of jobs in its src/include/job.h).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from launcher.schedulers.jobs import names_script

MOST_ASKED = 1000
"""Jobs in one question: an argument list can be no longer than 2 MiB, and an answer should be read."""

UNKNOWN_JOBS = (0, 35, 153)
"""Exit codes of a qstat that has answered: 153 is of a job that it does not know, 35 of one that ended."""

_KILLED_BY = 256
"""An Exit_status that is this much and a signal's number: the script was killed by it."""

_WALLTIME = -29
_MEMORY = (-26, -27)


class PbsJob(NamedTuple):
    """What PBS says of one job, or of one of an array's; see `JobTold`."""

    job: str
    task: int | None
    word: str
    """Its job_state: Q, H, W, T, R, E, S, U, B, F, X or M."""
    exit_status: int | None = None
    """PBS's own Exit_status: negative where PBS ended it, 256 and more where a signal did."""
    comment: str | None = None
    holds: str = "n"
    """Its Hold_Types: u, o, s, p, or n for none."""
    depend: str | None = None
    submitted: float | None = None
    start: float | None = None
    end: float | None = None
    script: str = ""
    """What qsub was given: its arguments."""
    folder: str = ""
    """Where it was submitted."""

    @property
    def stage(self) -> str:
        """pending, running, ended or unknown: where it is."""
        return _STAGES.get(self.word, "unknown")

    @property
    def ending(self) -> str:
        """What became of it, in castoff's word."""
        if self.stage != "ended":
            return "unknown"
        if self.exit_status is None:  # it was deleted before it ran
            return "cancelled"
        if self.exit_status == _WALLTIME:
            return "walltime"
        if self.exit_status in _MEMORY:
            return "out-of-memory"
        if self.exit_status >= _KILLED_BY:
            return "cancelled"
        return "failed" if self.exit_status else "done"

    @property
    def ended_itself(self) -> bool:
        """Whether its script ended by itself, and so had the last word."""
        return self.stage == "ended" and self.exit_status is not None and 0 <= self.exit_status < _KILLED_BY

    @property
    def exit_code(self) -> int | None:
        """Its script's code, or 128 and the number of the signal that ended it."""
        status = self.exit_status
        if status is None or status < 0:
            return None
        return status if status < _KILLED_BY else 128 + (status - _KILLED_BY) % 128

    @property
    def waits(self) -> str:
        """Why it waits, in plain words, and with PBS's own."""
        if self.word == "H" and self._is_held:
            return f"it is held (Hold_Types {self.holds}); `qrls -h {self.holds} {self._place}` lets it go"
        if self.word == "H":
            return f"it waits for another job ({self.depend})"
        if self.word == "W":
            return "its time to begin has not come"
        if self.comment:
            return f"PBS says: {self.comment}"
        return "PBS has not looked at it yet"

    @property
    def is_stuck(self) -> bool:
        """Whether it waits until somebody does something."""
        # What asks for more than there is is not held; PBS says "Can Never Run" of it.
        return (self.word == "H" and self._is_held) or "Can Never Run" in (self.comment or "")

    @property
    def is_void(self) -> bool:
        """Whether it ended because what it waited for could no longer be."""
        waited = (self.depend or "").startswith("after")  # those that wait for it stand there, too
        return self.stage == "ended" and self.exit_status is None and waited

    def why(self, own_user: str) -> str | None:
        """Why it ended so, where that is more than castoff's word for it says."""
        if self.is_void:
            return f"what it waited for can no longer be, or it was deleted ({self.depend})"
        if self.ending == "failed" and self.exit_status is not None and self.exit_status < 0:
            told = f": {self.comment}" if self.comment else ""
            return f"PBS could not run it (Exit_status {self.exit_status}){told}"
        if self.ending == "out-of-memory":
            return "it used more memory than it had"
        return None

    def runs(self, script: str) -> bool:
        """Whether the job is that of a script in a run directory, which is its tag."""
        return names_script(self.script, script)

    @property
    def _is_held(self) -> bool:
        return any(kind in self.holds for kind in "uop") or ("s" in self.holds and not self.depend)

    @property
    def _place(self) -> str:
        return self.job if self.task is None else self.job.replace("[]", f"[{self.task}]", 1)


_STAGES = {
    **dict.fromkeys("QHWT", "pending"),
    **dict.fromkeys("RESUB", "running"),
    **dict.fromkeys("FX", "ended"),
}
"""By job_state; one that was moved (M) is another server's."""


def queue_command(jobs: Iterable[str], *, history: bool = True) -> list[str]:
    """qstat about jobs, with each member of their arrays and, with `history`, those that have ended."""
    return ["qstat", *(["-x"] if history else []), "-t", "-f", "-F", "json", *jobs]


def find_command(user: str, name: str, *, history: bool = True) -> list[str]:
    """qselect: the ids of a user's jobs of a name."""
    return ["qselect", *(["-x"] if history else []), "-u", user, "-N", name]


def parse_found(answer: str) -> list[str]:
    """The ids in qselect's answer."""
    return [line.strip() for line in answer.splitlines() if line[:1].isdigit()]


def parse_queue(answer: str) -> list[PbsJob]:
    """The jobs in qstat's answer; of arrays their members. What cannot be read says nothing.

    Its JSON is not always JSON: texts that look like numbers are written as such, and quotes within one
    are not escaped. What does not parse is read line by line, as it is written.
    """
    try:
        held = json.loads(answer, strict=False).get("Jobs", {})
    except (ValueError, AttributeError, RecursionError):
        held = _by_lines(answer)
    if not isinstance(held, dict):
        return []
    found = [_job(name, attributes) for name, attributes in held.items() if isinstance(attributes, dict)]
    told = [one for one in found if one is not None]
    arrays = {one.job for one in told if one.task is not None}
    # What was submitted is told of the array alone (OpenPBS 23).
    scripts = {one.job: one.script for one in told if one.task is None}
    # Of an array itself only where it has told of no member: its state B may be any of theirs.
    return [
        one._replace(script=one.script or scripts.get(one.job, ""))
        for one in told
        if one.task is not None or one.job not in arrays
    ]


def _job(name: str, held: Mapping[str, Any]) -> PbsJob | None:
    place = re.fullmatch(r"(\d+)(?:\[(\d*)\])?(\..*)?", name)
    word = held.get("job_state")
    if place is None or not isinstance(word, str):
        return None
    number, index, server = place.groups()
    job = name if index is None else f"{number}[]{server or ''}"
    return PbsJob(
        job,
        int(index) if index else None,
        word,
        _number(held.get("Exit_status")),
        _text(held.get("comment")),
        _text(held.get("Hold_Types")) or "n",
        _text(held.get("depend")),
        _seconds(held.get("qtime")),
        _seconds(held.get("stime")),
        _seconds(held.get("obittime") or held.get("mtime")) if word in "FX" else None,
        _text(held.get("Submit_arguments")) or "",
        _folder(held.get("Variable_List")),
    )


def _folder(variables: Any) -> str:
    if isinstance(variables, dict):
        return str(variables.get("PBS_O_WORKDIR", ""))
    found = re.search(r"(?:^|,)PBS_O_WORKDIR=([^,]*)", str(variables or ""))
    return found[1] if found else ""


_FIELD = re.compile(r'^\s+"([\w.]+)":(.*?),?$')
_NAME = re.compile(r'^\s+"(\d+(?:\[\d*\])?\.[^"]*)":\{$')


def _by_lines(answer: str) -> dict[str, dict[str, str]]:
    """The attributes of each job in an answer that is no JSON; a line holds one."""
    found: dict[str, dict[str, str]] = {}
    held: dict[str, str] = {}
    for line in answer.splitlines():
        if name := _NAME.match(line):
            held = found.setdefault(name[1], {})
        elif field := _FIELD.match(line):
            held.setdefault(field[1], field[2].removeprefix('"').removesuffix('"'))
    return found


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _number(value: Any) -> int | None:
    try:
        return None if value is None else int(value)
    except (TypeError, ValueError):
        return None


def _seconds(value: Any) -> float | None:
    """A time as ctime(3) writes it, in the server's zone, which is taken for ours."""
    try:
        return time.mktime(time.strptime(str(value), "%a %b %d %H:%M:%S %Y"))
    except (ValueError, OverflowError):
        return None
