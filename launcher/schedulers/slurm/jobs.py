"""Queries about jobs for Slurm, and how castoff reads the answers.

squeue reports pending, running and recently ended jobs (MinJobAge); sacct reports older ones, if there is
accounting. https://slurm.schedmd.com/squeue.html, sacct.html, job_state_codes.html, job_reason_codes.html;
seen on 22.05, and written for 22.05 to 25.11.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence

from castoff.launcher.schedulers.job_info import JobInfo, whole
from castoff.launcher.schedulers.page import Page, Wanted, everything, records

MAX_QUERIED = 10_000
"""The most jobs in one query to sacct: a command's argument cannot be longer than 128 KiB."""

_QUEUE_FIELDS = ("%F", "%K", "%T", "%r", "%V", "%S", "%e", "%o")
_HISTORY_FIELDS = ("JobID", "State", "ExitCode", "Submit", "Start", "End", "SubmitLine")
_MOST_INDICES = 4_000_001
"""A number above the largest possible index in an array of Slurm."""


_STAGES = {
    **dict.fromkeys(("PENDING", "CONFIGURING", "EXPEDITING", "POWER_UP_NODE"), "pending"),
    **dict.fromkeys(("LAUNCH_FAILED", "RECONFIG_FAIL", "REQUEUED", "REQUEUE_FED"), "pending"),
    **dict.fromkeys(("REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"), "pending"),
    **dict.fromkeys(("RUNNING", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT"), "running"),
    **dict.fromkeys(("STOPPED", "SUSPENDED", "UPDATE_DB"), "running"),
}
"""castoff's stage for each state of a job that has not ended."""

_UNKNOWN = {"REVOKED": "another cluster of its federation took it"}
"""What states mean that do not show whether a job has ended."""

_ENDINGS = {
    "BOOT_FAIL": ("node-failure", "a node did not boot"),
    "CANCELLED": ("cancelled", None),
    "COMPLETED": ("done", None),
    "DEADLINE": ("walltime", "it could not end before the deadline it was given"),
    "FAILED": ("failed", None),
    "NODE_FAIL": ("node-failure", "one of its nodes went down"),
    "OUT_OF_MEMORY": ("out-of-memory", "it used more memory than it had"),
    "PREEMPTED": ("preempted", "Slurm gave its nodes to another job"),
    # in sacct's answer, this start of the job is over
    "REQUEUED": ("preempted", "it was ended to be requeued"),
    "TIMEOUT": ("walltime", None),
}
"""castoff's ending, and the reason if there is one, by state."""

_SCRIPTS_OWN = ("FAILED", "COMPLETED")
"""The states of jobs whose script ended by itself."""

_HELD = {
    "JobHeldUser": "it is held",
    "launch_failed_requeued_held": "its nodes could not start it, so it is held",
    "job_requeued_in_held_state": "it was requeued, and is held",
    **dict.fromkeys(("JobHoldMaxRequeue", "MaxRequeue"), "it was requeued too often, and is held"),
    **dict.fromkeys(("REQUEUE_HOLD", "SPECIAL_EXIT"), "it was requeued, and is held"),
    "RESV_DEL_HOLD": "its reservation is gone, and it is held",
}
"""Why a job is pending until its owner releases it, by Slurm's name for the reason or the state."""

_STUCK = {
    **_HELD,
    "DependencyNeverSatisfied": "what it waits for can never happen",
    "JobHeldAdmin": "an administrator holds it",
    "BadConstraints": "no node has what it asks for",
    "PartitionTimeLimit": "its walltime is longer than its partition allows",
    "PartitionNodeLimit": "it asks for more nodes, or fewer, than its partition allows",
    "PartitionConfig": "its partition does not allow what it asks for",
    "Constraints": "no node has what it asks for",
    "ReservationDeleted": "its reservation is gone",
    "ReservationInvalid": "its reservation is not one that it may use",
    "InvalidAccount": "its account does not exist, or is not yours",
    "InvalidQOS": "its QOS does not exist, or is not yours",
    "QOSNotAllowed": "its partition or account does not allow its QOS",
    "AccountNotAllowed": "its partition does not allow its account",
    **dict.fromkeys(
        ("BurstBufferOperation", "Burst_buffer_stage-in_timeout", "Burst_buffer_pre_run_error"),
        "its burst buffer could not be made",
    ),
    "DeadLine": "it can no longer meet its deadline",
}
"""Why a job is pending for ever unless somebody acts."""

_WAITING = {
    **_STUCK,
    "None": "Slurm has not looked at it yet",
    "Priority": "others come first",
    "Resources": "it waits for nodes to become free",
    "Dependency": "it waits for another job",
    "BeginTime": "its begin time has not come",
    "JobArrayTaskLimit": "the allowed number of its array's members already run",
    "ReqNodeNotAvail": "nodes that it needs are down, drained or reserved",
    "Nodes_required_for_job_are_DOWN": "nodes that it needs are down, drained or reserved",
    **dict.fromkeys(("NodeDown", "FrontEndDown"), "a node that it needs is down"),
    **dict.fromkeys(
        ("PowerNotAvail", "PowerReserved"), "there is no power for more nodes now, or it is reserved"
    ),
    **dict.fromkeys(
        ("BurstBufferResources", "BurstBufferStageIn"), "its burst buffer is being filled, or has no room"
    ),
    "AccountingPolicy": "a limit of your account or QOS is reached",
    "FedJobLock": "another cluster of the federation may be starting it",
    "SchedDefer": "it could not start at once; Slurm tries again later",
    "SystemFailure": "Slurm, or one of its nodes, failed while it was started",
    "PartitionDown": "its partition starts no jobs at the moment",
    "PartitionInactive": "its partition is inactive",
    "Reservation": "its reservation has not begun",
    "Licenses": "it waits for licences",
    "Prolog": "its nodes are being prepared",
    "Cleaning": "Slurm is cleaning up after its last start",
    "JobLaunchFailure": "its nodes could not start it",
    "ReservedMaintenance": "nodes that it needs are kept free for maintenance",
    "CONFIGURING": "its nodes are being prepared",
    "POWER_UP_NODE": "its nodes are being switched on",
    **dict.fromkeys(("REQUEUED", "REQUEUE_FED"), "it is being requeued"),
    "LAUNCH_FAILED": "its nodes could not start it",
    "RECONFIG_FAIL": "its nodes could not be set up",
}
"""Why a job is pending, by Slurm's name for the reason (job_reason_codes.html) or a more precise state."""


def _job(job: str, word: str, times: Iterable[str], script: str) -> JobInfo:
    submitted, start, end = map(_seconds, times)
    return _is(JobInfo(job, None, word, submitted=submitted, start=start, end=end, script=script), word)


def _is(info: JobInfo, word: str) -> JobInfo:
    """Set a job's state."""
    ending, reason = _ENDINGS.get(word, ("unknown", _UNKNOWN.get(word)))
    stage = _STAGES.get(word) or ("unknown" if ending == "unknown" else "ended")
    return info._replace(
        word=word,
        stage=stage,
        ending=ending,
        ended_itself=word in _SCRIPTS_OWN,
        why=reason,
        was_cancelled=word == "CANCELLED",
        was_requeued=word == "REQUEUED",
    )


def _waiting(info: JobInfo, reason: str) -> JobInfo:
    """Add to a job why the job is pending, or why it was never started."""
    if info.word in _WAITING:
        reason = info.word
    known = _known(reason)
    if info.word == "FAILED" and known in _STUCK:  # the script never ran
        return info._replace(ended_itself=False, why=f"{_STUCK[known]} ({reason})")
    if info.stage != "pending":
        return info
    # For jobs that wait for other jobs or are held, Slurm reports a start time that is not an estimate.
    start = info.start if known not in ("Dependency", info.word, *_STUCK) else None
    words = _waiting_words(info, reason, known)
    info = info._replace(pending_reason=words, is_held=known in _STUCK, start=start)
    return info._replace(dependency_never_satisfied=known == "DependencyNeverSatisfied")


def _known(reason: str) -> str:
    """Return Slurm's name for a reason, from a text that may contain more."""
    text = (reason or "None").strip("() ")
    # Names of nodes may follow the reason, and some versions write sentences with _ for spaces.
    known = re.split(r"[,:(]", text, maxsplit=1)[0].strip().replace(" ", "_")
    return known if known in _WAITING else re.split(r"[ _]", known, maxsplit=1)[0]


def _waiting_words(info: JobInfo, reason: str, known: str) -> str:
    """Return why a job is pending, in castoff's words and Slurm's."""
    limit = known.startswith(("QOS", "Assoc", "Max"))
    other = "a limit of your account or QOS is reached" if limit else "Slurm has another reason"
    words = _WAITING.get(known, other)
    words = f"{words} ({reason})" if reason not in ("", "None") else words
    return f"{words}; `scontrol release {_name(info)}` releases it" if known in _HELD else words


def queue_command(user: str) -> list[str]:
    """Return the squeue command for all jobs of a user, in every partition, including recently ended ones."""
    # The path is last, since it may contain any character.
    fields = "|".join(_QUEUE_FIELDS)
    return [
        "squeue",
        "--noheader",
        "--all",
        "--states=all",
        "--array",
        f"--user={user}",
        f"--format={fields}",
    ]


def parse_queue(page: Page, wanted: Wanted = everything) -> list[JobInfo]:
    """Read the jobs in squeue's answer; incomplete lines are skipped."""
    infos = []
    for job, index, word, reason, *times, script in lines(page, _QUEUE_FIELDS):
        if wanted(job, script) and job.isdecimal() and word:
            info = _job(job, word, times, script)
            infos += [_waiting(info._replace(task=task), reason) for task in _indices(index)]
    return infos


def history_command(jobs: Iterable[str] = (), *, user: str = "", since: float | None = None) -> list[str]:
    """Return the sacct command for every start of these jobs, or for all jobs of a user since a time.

    The command for jobs includes their steps: if a step ran out of memory, some versions report this only in
    the step's line.
    """
    command = ["sacct", "--noheader", "--parsable2", "--duplicates", f"--format={','.join(_HISTORY_FIELDS)}"]
    if since is not None:
        begin = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since))
        return [*command, "--allocations", f"--user={user}", f"--starttime={begin}"]
    return [*command, f"--jobs={','.join(jobs)}"]


def parse_history(page: Page, wanted: Wanted = everything) -> list[JobInfo]:
    """Read the starts of jobs in sacct's answer, in its order; incomplete lines are skipped.

    A job counts as out of memory if one of its steps was, unless a later step failed, too. A job that
    restarts its ranks has separate steps for each attempt, so an earlier step says nothing about the job's
    end.
    """
    infos: list[JobInfo] = []
    before: JobInfo | None = None  # the last start, as read before a step ran out of memory
    full = 0.0  # when that step ended
    for job, state, code, *times, script in lines(page, _HISTORY_FIELDS):
        base, is_step, _ = job.partition(".")
        word, _, by = state.partition(" by ")
        word = word.rstrip("+").strip()
        if is_step:
            if not infos or base != _name(infos[-1]):
                continue
            step = _job(base, word, times, script)
            if word == "OUT_OF_MEMORY" and (before or infos[-1].word == "FAILED"):
                before, full = before or infos[-1], step.end or 0.0
                infos[-1] = _is(before, word)
            elif word in ("FAILED", "CANCELLED") and before is not None and (step.start or 0.0) > full:
                infos[-1] = before
            continue
        before = None
        number, _, index = base.partition("+")[0].partition("_")  # 7+1 is a part of a heterogeneous job
        if not (number.isdecimal() and word and wanted(number, script)):
            continue
        info = _job(number, word, times, script)
        info = info._replace(exit_code=_exit_code(code), cancelled_by=by.strip() or None)
        infos += [info._replace(task=task) for task in _indices(index or "N/A")]
    return infos


def lines(page: Page, fields: Sequence[str]) -> Iterator[list[str]]:
    """Yield the fields of each complete line: one that ends with a newline and has all fields."""
    most = len(fields) - 1
    for line in records(page, "\n"):
        words = line.split("|", most)
        if len(words) > most:
            yield words


def _exit_code(text: str) -> int | None:
    """Read an ExitCode: `3:0` contains the script's exit code, `0:9` the signal that ended the script."""
    code, _, signal = map(whole, text.partition(":"))
    return 128 + signal if signal else code


def _name(info: JobInfo) -> str:
    return info.job if info.task is None else f"{info.job}_{info.task}"


def _indices(text: str) -> list[int | None]:
    """Read indices such as `3`, `[3-9,12%2]` or `[0-8:4]`; there may be none. Slurm shortens long lists with
    dots.
    """
    if text in ("", "N/A"):
        return [None]
    indices: list[int | None] = []
    for part in text.strip("[]").partition("%")[0].split(","):
        ends = re.fullmatch(r"(\d{1,8})(?:-(\d{1,8})(?::(\d{1,8}))?)?", part)
        if ends is None:
            continue
        first, last, step = int(ends[1]), int(ends[2] or ends[1]), int(ends[3] or 1)
        if last < _MOST_INDICES and step:
            indices.extend(range(first, last + 1, step))
    return indices


def _seconds(text: str) -> float | None:
    """Read a time, which Slurm writes in seconds by SLURM_TIME_FORMAT=%s; None for N/A, NONE and Unknown."""
    return float(text) if re.fullmatch(r"\d{1,11}", text) else None
