"""A job, and what qstat -f tells of it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.pbs.double.placing import Chunk, chunks_of
from tests.pbs.double.wire import SERVER

_ranks = itertools.count(time.time_ns() // 1000)

WAITING = {"Q": 10, "H": 20, "W": 30}
SUBSTATES = {**WAITING, "T": 0, "R": 42, "E": 51, "B": 70}
DEPENDENT = 22
FINISHED, TERMINATED, FAILED = 92, 91, 93

Attribute = tuple[str, str | None, str]
"""Name, resource, value."""


@dataclass
class Job:
    """One that qsub has made, or a member of an array that has begun."""

    id: str
    submitted: dict[str, Any]
    """What qsub said."""
    state: str = "Q"
    substate: int = 10
    holds: set[str] = field(default_factory=set)
    ctime: float = field(default_factory=time.time)
    mtime: float = field(default_factory=time.time)
    etime: float | None = None
    stime: float | None = None
    obittime: float | None = None
    waits: list[tuple[str, str]] = field(default_factory=list)
    """Dependencies that are not met yet: kind and job."""
    awaited: list[tuple[str, str]] = field(default_factory=list)
    """The jobs that wait for this one: kind, as `beforeok`, and job."""
    exec_host: str = ""
    exec_vnode: str = ""
    hosts: list[str] = field(default_factory=list)
    """Of its chunks, in order; the script runs on the first."""
    run_count: int = 0
    exit_status: int | None = None
    delivered: int | None = None
    """Whether its output has got where it belongs: 1, or 0."""
    used: dict[str, str] = field(default_factory=dict)
    comment: str = ""
    jobdir: str = ""
    deleted_by: str = ""
    ended: bool = False
    """Whether it is history."""
    finished: float | None = None
    parent: Job | None = None
    index: int | None = None
    members: dict[int, Job | str] = field(default_factory=dict)
    """Of an array: members that have begun, as jobs, and the state of the others."""
    rank: int = field(default_factory=lambda: next(_ranks))

    @property
    def number(self) -> str:
        """What its output files are called by."""
        return self.id.partition(".")[0].partition("[")[0]

    @property
    def is_array(self) -> bool:
        return "[]" in self.id

    @property
    def rerunnable(self) -> bool:
        return bool(self.submitted["rerunnable"])

    @property
    def queue(self) -> str:
        return str(self.submitted["queue"])

    @property
    def resources(self) -> dict[str, str]:
        found: dict[str, str] = self.submitted["resources"]
        return found

    @property
    def chunks(self) -> list[Chunk]:
        return chunks_of(self.resources["select"])

    def set_state(self, state: str, substate: int | None = None) -> None:
        self.state, self.substate, self.mtime = state, substate or SUBSTATES[state], time.time()

    def unfinished(self) -> int:
        """How many jobs it counts for where a user may have only so many."""
        if self.is_array:
            return sum(not isinstance(member, Job) or not member.ended for member in self.members.values())
        return 0 if self.ended else 1

    def path(self, stream: str) -> str:
        """Where its output goes: Output_Path or Error_Path, without the host."""
        said = self.submitted["output" if stream == "o" else "error"]
        workdir = self.submitted["workdir"]
        index = "" if self.index is None and not self.is_array else f".{self._index()}"
        name = f"{self.submitted['name']}.{stream}{self.number}{index}"
        if not said:
            return f"{workdir}/{name}"
        said = said.partition(":")[2] if ":" in said.partition("/")[0] else said
        path = str(said) if said.startswith("/") else f"{workdir}/{said}"
        return path.replace("^array_index^", self._index()) if self.index is not None else path

    def _index(self) -> str:
        return "^array_index^" if self.index is None else str(self.index)


def moment(when: float) -> str:
    """A time as qstat writes it."""
    return time.ctime(when)


def attributes(job: Job) -> list[Attribute]:
    """All that qstat -f shows, in its order."""
    return [one for one in _attributes(job) if one[2] != ""]


def attributes_of_member(array: Job, index: int, *, among_others: bool) -> list[Attribute]:
    """Of a member that has never begun: its array's, and a few of its own."""
    own = array.members[index]
    found: list[Attribute] = []
    for name, resource, value in attributes(array):
        if name == "job_state":
            value = member_states(array)[index]
        elif name == "substate" and own == "Q" and among_others:
            value = "10"
        elif name == "comment" and own == "X":
            value = "Subjob finished"
        found.append((name, resource, value))
        if name == "Submit_arguments":
            break
    return found


def _attributes(job: Job) -> Iterator[Attribute]:
    said = job.submitted
    member = job.index is not None

    def one(name: str, value: object = None) -> Attribute:
        return name, None, "" if value is None else str(value)

    yield one("Job_Name", said["name"])
    yield one("Job_Owner", f"{said['user']}@{said['host']}")
    for name, value in job.used.items():
        yield "resources_used", name, value
    yield one("job_state", job.state)
    yield one("queue", job.queue)
    yield one("server", SERVER)
    yield one("Account_Name", said["account"])
    yield one("Checkpoint", None if member else "u")
    yield one("ctime", moment(job.ctime))
    yield one("depend", ",".join(f"{kind}:{jobs}" for kind, jobs in _by_kind((*job.waits, *job.awaited))))
    yield one("Error_Path", f"{said['host']}:{job.path('e')}")
    yield one("exec_host", job.exec_host)
    yield one("exec_vnode", job.exec_vnode)
    if said["after"] is not None:
        yield one("Execution_Time", moment(said["after"]))
    yield one("group_list", said["group_list"])
    yield one("Hold_Types", None if member else "".join(sorted(job.holds)) or "n")
    yield one("Join_Path", said["join"])
    yield one("Keep_Files", said["keep"])
    yield one("Mail_Points", said["mail"])
    yield one("mtime", moment(job.mtime))
    yield one("Output_Path", f"{said['host']}:{job.path('o')}")
    yield one("Priority", said["priority"])
    yield one("qtime", moment(job.ctime))
    yield one("Rerunable", job.rerunnable)
    for name, value in job.resources.items():
        yield "Resource_List", name, value
    yield one("schedselect", said["schedselect"])
    if job.stime is not None:
        yield one("stime", moment(job.stime))
    if job.obittime is not None:
        yield one("obittime", moment(job.obittime))
    yield one("Shell_Path_List", said["shell"])
    yield one("jobdir", job.jobdir)
    yield one("substate", job.substate)
    yield one("Variable_List", ",".join(f"{name}={value}" for name, value in said["variables"]))
    yield one("euser", said["user"])
    yield one("egroup", said["group"])
    yield one("hashname", job.id if job.run_count else "")
    yield one("queue_rank", job.rank)
    yield one("queue_type", "E")
    yield one("comment", job.comment)
    if job.etime is not None:
        yield one("etime", moment(job.etime))
    yield one("umask", said["umask"])
    yield one("run_count", job.run_count or "")
    yield one("Stageout_status", job.delivered)
    yield one("Exit_status", job.exit_status)
    yield one("Submit_arguments", None if member else said["arguments"])
    if job.is_array:
        yield one("array", "True")
        yield one("array_state_count", array_counts(job))
        yield one("array_indices_submitted", said["array"])
        yield one("array_indices_remaining", remaining(job))
    if job.parent is not None:
        yield one("array_id", job.parent.id)
        yield one("array_index", job.index)
    if job.finished is not None:
        yield one("history_timestamp", int(job.finished))
    yield one("project", "_pbs_project_default")
    yield one("run_version", job.run_count or "")
    yield one("tolerate_node_failures", said["tolerate_node_failures"])
    yield one("Submit_Host", said["host"])
    yield one("max_run_subjobs", said["at_most"] if job.is_array else None)


def _by_kind(dependencies: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    found: dict[str, list[str]] = {}
    for kind, other in dependencies:
        found.setdefault(kind, []).append(f"{other}@{SERVER}")
    return ((kind, ":".join(others)) for kind, others in found.items())


def member_states(array: Job) -> dict[int, str]:
    """The state of each member, as qstat -t shows it."""
    found = {}
    for index, member in array.members.items():
        state = member if isinstance(member, str) else "X" if member.ended else member.state
        found[index] = "F" if array.ended else state
    return found


def array_counts(array: Job) -> str:
    """array_state_count."""
    states = [_own_state(member) for member in array.members.values()]
    return "Queued:{} Running:{} Exiting:{} Expired:{}".format(*(states.count(one) for one in "QREX"))


def _own_state(member: Job | str) -> str:
    if isinstance(member, str):
        return member
    return "X" if member.state == "X" else "" if member.ended else member.state


def remaining(array: Job) -> str:
    """array_indices_remaining: those that have not begun."""
    left = [index for index, member in array.members.items() if member == "Q"]
    step = array.submitted["indices"][2]
    spans: list[list[int]] = []
    for index in left:
        if spans and index == spans[-1][-1] + step:
            spans[-1].append(index)
        else:
            spans.append([index])
    tail = f":{step}" if step > 1 else ""
    words = [f"{span[0]}-{span[-1]}{tail}" if len(span) > 1 else str(span[0]) for span in spans]
    return ",".join(words) or "-"
