"""What PBS says of jobs: the questions, how its answers are read, and what its words mean.

One qstat tells of jobs that wait, run and, where the server keeps a history, have ended (qstat(1B),
qselect(1B), pbs_job_attributes(7B) of OpenPBS 23; exit codes of jobs in its src/include/job.h).
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from launcher.schedulers.jobs import names_script

MOST_ASKED = 1000
"""Jobs in one question: an argument list can be no longer than 2 MiB, and an answer should be read."""

_KILLED_BY = 256
"""An Exit_status that is this much and a signal's number: the script was killed by it."""

_TERMINATED = 91
"""The substate of a job that was deleted."""

_NOT_STARTED = "PBS could not start it"
_MOM_STARTED_AGAIN = "PBS was started again on its first node, which ends jobs there"
_RERUN = "PBS ended it to queue it again"
_ENDED_BY_PBS = {
    -1: ("failed", _NOT_STARTED),
    -2: ("failed", _NOT_STARTED),
    -3: ("failed", _NOT_STARTED),
    -4: ("node-failure", _MOM_STARTED_AGAIN),
    -5: ("node-failure", _MOM_STARTED_AGAIN),
    -6: ("node-failure", _MOM_STARTED_AGAIN),
    -7: ("failed", "PBS could not start it again from its checkpoint"),
    -10: ("failed", "your user or group is not known on its nodes"),
    -11: ("preempted", _RERUN),
    -12: ("preempted", "PBS ended it after a checkpoint of its own"),
    -13: ("failed", "PBS did not accept your password"),
    -14: ("node-failure", "one of its nodes was lost"),
    -15: ("preempted", _RERUN),
    -16: ("failed", "a hook of the site refused it"),
    -17: ("failed", "a hook of the site refused it"),
    -18: ("preempted", "a hook of the site ended it to queue it again"),
    -19: ("cancelled", "a hook of the site deleted it"),
    -20: ("node-failure", "its first node was lost"),
    -21: ("failed", "PBS did not trust its own folders on its first node"),
    -22: ("failed", "a hook of the site failed"),
    -23: ("failed", "PBS had no Kerberos credentials of yours"),
    -24: ("failed", "it used more CPUs at once than it had"),
    -25: ("failed", "it used more CPUs than it had"),
    -26: ("out-of-memory", "it used more virtual memory than it had"),
    -27: ("out-of-memory", "it used more memory than it had"),
    -28: ("failed", "it used more CPU time than its limit, `cput`"),
    -29: ("walltime", None),
    -30: ("node-failure", "not all of its nodes took part"),
}
"""By Exit_status: castoff's word, and why (JOB_EXEC_ and JOB_EXEC_KILL_ in job.h)."""


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
    substate: int | None = None
    owner: str = ""

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
        if self.exit_status < 0:
            return _ENDED_BY_PBS.get(self.exit_status, ("failed", None))[0]
        if self.exit_status >= _KILLED_BY or self.substate == _TERMINATED:
            return "cancelled"
        return "failed" if self.exit_status else "done"

    @property
    def ended_itself(self) -> bool:
        """Whether its script ended by itself, and so had the last word."""
        return self.stage == "ended" and self.exit_status is not None and 0 <= self.exit_status < _KILLED_BY

    @property
    def may_have_been_killed(self) -> bool:
        """Whether it may have been killed, though it looks as if it ended well: root's have Exit_status 0."""
        return self.ending == "done" and self.owner.startswith("root@")

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
        if self.exit_status is None or self.exit_status >= 0:
            return None
        if self.exit_status in _ENDED_BY_PBS:
            words = _ENDED_BY_PBS[self.exit_status][1]
            return words and f"{words} (Exit_status {self.exit_status})"
        told = f": {self.comment}" if self.comment else ""
        return f"PBS ended it (Exit_status {self.exit_status}){told}"

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
    """qstat about jobs, with each member of their arrays and, with `history`, those that have ended.

    In lines, one for each attribute: of several jobs, JSON tells the first alone (OpenPBS since 2023-12), and
    changes values (OpenPBS 23).
    """
    return ["qstat", *(["-x"] if history else []), "-t", "-f", "-w", *jobs]


def find_command(user: str, name: str | None = None, *, history: bool = True) -> list[str]:
    """qselect: the ids of a user's jobs, or those of a name."""
    return ["qselect", *(["-x"] if history else []), "-u", user, *(["-N", name] if name else [])]


def parse_found(answer: str) -> list[str]:
    """The ids in qselect's answer."""
    return [line.strip() for line in answer.splitlines() if line[:1].isdigit()]


def parse_denied(errors: str) -> set[str]:
    """The ids of which qstat says that its server does not know them."""
    return set(re.findall(r"^qstat: Unknown Job Id (\S+)", errors, re.MULTILINE | re.IGNORECASE))


def parse_queue(answer: str) -> list[PbsJob]:
    """The jobs in qstat's answer; of arrays their members. What is not told to its end says nothing."""
    held = dict(_blocks(answer))
    told = [one for name, attributes in held.items() if (one := _job(name, attributes))]
    members = Counter(one.job for one in told if one.task is not None)
    # What was submitted is told of the array alone (OpenPBS 23).
    scripts = {one.job: one.script for one in told if one.task is None}
    counts = {
        name: _count(attributes.get("array_indices_submitted", "")) for name, attributes in held.items()
    }
    cut = {array for array, count in counts.items() if members[array] < count}
    # Of an array itself only where it has told of no member: its state B may be any of theirs.
    return [
        one._replace(script=one.script or scripts.get(one.job, ""))
        for one in told
        if one.job not in cut and (one.task is not None or one.job not in members)
    ]


def _blocks(answer: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Each job's name and attributes; an empty line ends them."""
    *blocks, _ = answer.split("\n\n")
    for block in blocks:
        first, *lines = block.split("\n")
        if first.startswith("Job Id: "):
            pairs = (line.removeprefix("    ").partition(" = ") for line in lines)
            yield first.removeprefix("Job Id: ").strip(), {name: value for name, _, value in pairs}


def _count(indices: str) -> int:
    """How many members `0-8:2` are."""
    found = re.fullmatch(r"(\d{1,8})-(\d{1,8})(?::(\d{1,8}))?", indices)
    return len(range(int(found[1]), int(found[2]) + 1, int(found[3] or 1) or 1)) if found else 0


def _job(name: str, held: Mapping[str, str]) -> PbsJob | None:
    place = re.fullmatch(r"(\d+)(?:\[(\d*)\])?(\..*)?", name)
    word = held.get("job_state")
    if place is None or word is None:
        return None
    number, index, server = place.groups()
    job = name if index is None else f"{number}[]{server or ''}"
    # Of a member that never ran it tells what it has to tell of the array.
    ran = not index or "array_index" in held
    return PbsJob(
        job,
        int(index) if index else None,
        word,
        _number(held.get("Exit_status")) if ran else None,
        held.get("comment"),
        held.get("Hold_Types") or "n",
        held.get("depend"),
        _seconds(held.get("qtime")),
        _seconds(held.get("stime")),
        _seconds(held.get("obittime") or held.get("mtime")) if word in "FX" else None,
        held.get("Submit_arguments") or "",
        _folder(held.get("Variable_List") or ""),
        _number(held.get("substate")),
        held.get("Job_Owner") or "",
    )


def _folder(variables: str) -> str:
    """Where it was submitted; a comma in a value has a backslash before it."""
    told = (found[0].partition("=") for found in re.finditer(r"(?:\\,|[^,])+", variables))
    return next((value.replace("\\,", ",") for name, _, value in told if name == "PBS_O_WORKDIR"), "")


def _number(value: str | None) -> int | None:
    try:
        return None if value is None else int(value)
    except ValueError:
        return None


def _seconds(value: str | None) -> float | None:
    """A time as ctime(3) writes it, in this host's zone: qstat runs here."""
    try:
        return time.mktime(time.strptime(value or "", "%a %b %d %H:%M:%S %Y"))
    except (ValueError, OverflowError):
        return None
