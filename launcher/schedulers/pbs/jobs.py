"""Reads PBS's answers about jobs.

One qstat reports pending, running and, if the server keeps a history, ended jobs (qstat(1B), qselect(1B),
pbs_job_attributes(7B) of OpenPBS 23; exit codes of jobs in its src/include/job.h).
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Container, Iterator, Mapping

from castoff.launcher.schedulers.job_info import JobInfo, whole
from castoff.launcher.schedulers.page import Page, records

_KILLED_BY = 256
"""An Exit_status of this number plus N: signal N killed the script."""

_TERMINATED = 91
"""The substate of a job that was deleted."""

_ENDED_BY_PBS = {
    **dict.fromkeys((-1, -2, -3), ("failed", "PBS could not start it")),
    **dict.fromkeys(
        (-4, -5, -6), ("node-failure", "PBS was restarted on its first node, which ends jobs there")
    ),
    -10: ("failed", "your user or group is not known on its nodes"),
    **dict.fromkeys((-11, -15), ("preempted", "PBS ended it to requeue it")),
    -12: ("preempted", "PBS ended it after checkpointing it"),
    -14: ("node-failure", "one of its nodes was lost"),
    **dict.fromkeys((-16, -17), ("failed", "a hook of the site refused it")),
    -18: ("preempted", "a hook of the site ended it to requeue it"),
    -19: ("cancelled", "a hook of the site deleted it"),
    -20: ("node-failure", "its first node was lost"),
    -22: ("failed", "a hook of the site failed"),
    -24: ("failed", "it used more CPUs at once than it had"),
    -25: ("failed", "it used more CPUs than it had"),
    -26: ("out-of-memory", "it used more virtual memory than it had"),
    -27: ("out-of-memory", "it used more memory than it had"),
    -28: ("failed", "it used more CPU time than its limit, `cput`"),
    -29: ("walltime", None),
    -30: ("node-failure", "not all of its nodes joined"),
}
"""castoff's ending and the reason, by Exit_status (JOB_EXEC_ and JOB_EXEC_KILL_ in job.h)."""


_STAGES = {
    **dict.fromkeys("QHWT", "pending"),
    **dict.fromkeys("RESUB", "running"),
    **dict.fromkeys("FX", "ended"),
}
"""castoff's stage for each job_state."""

_UNKNOWN = {"M": "it was moved to another server"}
"""What states mean that do not show whether a job has ended."""


def parse_found(page: Page) -> list[str]:
    """Read the ids in qselect's answer."""
    return [line.strip() for line in records(page, "\n") if line[:1].isdigit()]


def parse_denied(errors: str) -> set[str]:
    """Read the ids that qstat reports as unknown to the server."""
    return set(re.findall(r"^qstat: Unknown Job Id (\S+)", errors, re.MULTILINE | re.IGNORECASE))


def parse_queue(page: Page, jobs: Container[str] | None = None) -> list[JobInfo]:
    """Read the jobs in qstat's answer; of arrays, the members. An array is left out if its part of the answer
    was cut off.

    `jobs`: read only the entries of these ids, as they were passed to qstat (default: all).
    """
    reported: dict[str, JobInfo] = {}
    counts: dict[str, int] = {}
    for name, attributes in blocks(page, jobs):
        if info := _job(name, attributes):
            reported[name] = info
        if indices := attributes.get("array_indices_submitted"):
            counts[name] = _count(indices)
    infos = [*reported.values()]
    members = Counter(info.job for info in infos if info.task is not None)
    wholes = {info.job: info for info in infos if info.task is None}
    cut = {array for array, count in counts.items() if members[array] < count}
    # The array's own entry counts only if no member was reported: its state B says nothing about members'
    # states.
    return [
        _of_array(info, wholes.get(info.job))
        for info in infos
        if info.job not in cut and (info.task is not None or info.job not in members)
    ]


def _of_array(info: JobInfo, whole: JobInfo | None) -> JobInfo:
    """Add to a member's job what PBS reports only for the array: the script, and that the array is held
    (OpenPBS 23).
    """
    if whole is None:
        return info
    info = info._replace(script=info.script or whole.script)
    if info.stage != "pending" or whole.word != "H":
        return info
    return info._replace(pending_reason=whole.pending_reason, is_held=whole.is_held)


def blocks(page: Page, jobs: Container[str] | None = None) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the name and the attributes of each entry of `qstat -f` or `pbsnodes -a`; empty lines separate
    them.

    `jobs`: yield only these jobs, and the members of these arrays (default: all).
    """
    for block in records(page, "\n\n"):
        if jobs is not None and _id_of(block) not in jobs:
            continue
        first, *lines = block.replace("\n\t", "").split("\n")  # without -w, qstat breaks long lines
        attributes: dict[str, str] = {}
        for name, _, value in (line.lstrip(" ").partition(" = ") for line in lines):
            before = f"{attributes[name]}," if name in attributes else ""  # a limit may have several parts
            attributes[name] = f"{before}{value}"
        yield first.rpartition(": ")[2].strip(), attributes


def _id_of(block: str) -> str | None:
    """Return the id of the job that an entry describes; for a member, the id of the array."""
    name = placed(block.partition("\n")[0].rpartition(": ")[2].strip())
    return name and name[0]


def _count(indices: str) -> int:
    """Count the members in indices such as `0-8:2`."""
    match = re.fullmatch(r"(\d{1,8})-(\d{1,8})(?::(\d{1,8}))?", indices)
    return len(range(int(match[1]), int(match[2]) + 1, int(match[3] or 1) or 1)) if match else 0


def placed(name: str) -> tuple[str, int | None] | None:
    """Split PBS's name for a job, such as `7[3].head`, into its id (the array's: `7[].head`) and index."""
    match = re.fullmatch(r"(\d+)(?:\[(\d{0,9})\])?(\..*)?", name)
    if match is None:
        return None
    number, index, server = match.groups()
    return (name if index is None else f"{number}[]{server or ''}"), int(index) if index else None


def _job(name: str, attributes: Mapping[str, str]) -> JobInfo | None:
    job, word = placed(name), attributes.get("job_state")
    if job is None or word is None:
        return None
    info = JobInfo(
        *job,
        word=word,
        stage=_STAGES.get(word, "unknown"),
        why=_UNKNOWN.get(word),
        submitted=time_of(attributes.get("qtime")),
        start=time_of(attributes.get("stime")),
        end=time_of(attributes.get("obittime") or attributes.get("mtime")) if word in "FX" else None,
        script=attributes.get("Submit_arguments") or "",
        folder=_folder(attributes.get("Variable_List") or ""),
    )
    # For a member that never ran, PBS reports the array's Exit_status.
    status = (
        whole(attributes.get("Exit_status")) if info.task is None or "array_index" in attributes else None
    )
    return _ended(info, status, attributes) if info.stage == "ended" else _waiting(info, name, attributes)


def _ended(info: JobInfo, status: int | None, attributes: Mapping[str, str]) -> JobInfo:
    """Add to an ended job how the job ended."""
    if status is None:  # the job was deleted before it ran
        depend = attributes.get("depend", "")
        if not depend.startswith("after"):  # `depend` also lists the jobs that wait for this job
            return info._replace(ending="cancelled")
        reason = f"its condition can no longer be met, or it was deleted ({depend})"
        return info._replace(ending="cancelled", dependency_never_satisfied=True, why=reason)
    if status < 0:
        ending, words = _ENDED_BY_PBS.get(status, ("failed", "PBS ended it"))
        comment = (
            f": {attributes['comment']}" if status not in _ENDED_BY_PBS and attributes.get("comment") else ""
        )
        return info._replace(ending=ending, why=words and f"{words} (Exit_status {status}){comment}")
    if status >= _KILLED_BY:
        return info._replace(ending="cancelled", exit_code=128 + (status - _KILLED_BY) % 128)
    ending = "failed" if status else "done"
    if whole(attributes.get("substate")) == _TERMINATED:
        ending = "cancelled"
    # Root's jobs have an Exit_status of 0 even if they were killed.
    killed = ending == "done" and attributes.get("Job_Owner", "").startswith("root@")
    return info._replace(ending=ending, ended_itself=True, exit_code=status, may_have_been_killed=killed)


def _waiting(info: JobInfo, name: str, attributes: Mapping[str, str]) -> JobInfo:
    """Add to a pending job why the job waits, in castoff's words and PBS's; leave other jobs unchanged."""
    if info.stage != "pending":
        return info
    holds, depend, comment = (
        attributes.get("Hold_Types") or "n",
        attributes.get("depend"),
        attributes.get("comment") or "",
    )
    is_held = info.word == "H" and (any(kind in holds for kind in "uop") or ("s" in holds and not depend))
    if is_held:
        words = f"it is held (Hold_Types {holds}); `qrls -h {holds} {name}` releases it"
    elif info.word == "H":
        words = f"it waits for another job ({depend})"
    elif info.word == "W":
        words = "its begin time has not come"
    else:
        words = f"PBS says: {comment}" if comment else "PBS has not looked at it yet"
    # PBS does not hold a job that requests more than exists: its comment says "Can Never Run".
    is_held = is_held or "Can Never Run" in comment
    # A pending job's `stime` is that of an earlier start.
    estimate = None if is_held else time_of(attributes.get("estimated.start_time"))
    return info._replace(pending_reason=words, is_held=is_held, start=estimate)


def _folder(variables: str) -> str:
    """Return the folder in which a job was submitted; PBS writes a backslash before commas and quotes."""
    pairs = (match[0].partition("=") for match in re.finditer(r"(?:\\.|[^,])+", variables))
    return next((re.sub(r"\\(.)", r"\1", value) for name, _, value in pairs if name == "PBS_O_WORKDIR"), "")


def time_of(value: str | None) -> float | None:
    """Read a time in the form of ctime(3), in this host's time zone, since qstat runs on this host."""
    try:
        return time.mktime(time.strptime(value or "", "%a %b %d %H:%M:%S %Y"))
    except (ValueError, OverflowError):
        return None
