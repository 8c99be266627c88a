"""What LSF reports about jobs: the query, and how castoff reads the answer (bjobs(1) of LSF 10.1)."""

from __future__ import annotations

import re
from pathlib import Path

from castoff.launcher.schedulers.job_info import JobInfo, whole
from castoff.launcher.schedulers.page import Page, Wanted, everything, records

_FIELDS = "jobid jobindex stat exit_code exit_reason pend_reason sub_cwd command"

QUERY = ["bjobs", "-a", "-noheader", "-o", f"{_FIELDS} delimiter='|'"]
"""The command of a job is last, as it may hold any character."""

_STAGES = {
    **dict.fromkeys(("PEND", "PSUSP", "PROV", "WAIT"), "pending"),
    **dict.fromkeys(("RUN", "USUSP", "SSUSP"), "running"),
    **dict.fromkeys(("DONE", "EXIT"), "ended"),
}
"""By STAT; UNKWN and ZOMBI, of a job whose host LSF does not reach, may be anything."""

_ENDINGS = {
    **dict.fromkeys(("OWNER", "ADMIN", "FORCE_OWNER", "FORCE_ADMIN"), "cancelled"),
    **dict.fromkeys(("RUNLIMIT", "DEADLINE", "WINDOW"), "walltime"),
    **dict.fromkeys(("PREEMPT", "REQUEUE_OWNER", "REQUEUE_ADMIN", "REQUEUE_RC"), "preempted"),
    **dict.fromkeys(("MEMLIMIT", "SWAP", "SWAPLIMIT"), "out-of-memory"),
    "REMOVE_HUNG_JOB": "node-failure",
}
"""By exit_reason, as in `TERM_RUNLIMIT: job killed after reaching LSF run time limit`."""

_HOPELESS = "Dependency condition invalid or never satisfied"


def parse_denied(errors: str) -> set[str]:
    """The ids of which bjobs says that it does not know them."""
    return {*re.findall(r"^Job <(\d+)(?:\[\d+\])?> is not found$", errors, re.MULTILINE)}


def parse_queue(page: Page, wanted: Wanted = everything) -> list[JobInfo]:
    """The jobs in an answer; a line that was cut off, or is none of bjobs's, says nothing."""
    lines = (line.split("|", 7) for line in records(page, "\n"))
    whole_lines = (
        parts for parts in lines if len(parts) == 8 and re.fullmatch(r"\d{1,18}(\[\d+\])?", parts[0])
    )
    jobs = (job for parts in whole_lines if (job := _job(*parts)) is not None)
    return [job for job in jobs if wanted(job.job, job.script)]


def _job(
    job: str, index: str, word: str, code: str, ended: str, pending: str, folder: str, command: str
) -> JobInfo | None:
    job, _, own = job.partition("[")
    task = whole(own.rstrip("]") or index.replace("-", "0"))
    if task is None:
        return None
    stage = _STAGES.get(word, "unknown")
    info = JobInfo(
        job=job,
        task=task or None,
        word=word,
        stage=stage,
        script=command,
        folder=re.sub(r"^\$HOME\b", lambda _: str(Path.home()), folder),
    )
    if stage == "pending":
        return _waiting(info, pending)
    return _ended(info, code, ended) if stage == "ended" else info


def _ended(info: JobInfo, code: str, reason: str) -> JobInfo:
    found = re.match(r"TERM_(\w+)", reason)
    why = found[1] if found and found[1] != "UNKNOWN" else None
    exit_code = 0 if info.word == "DONE" else whole(code)
    return info._replace(
        ending="done" if info.word == "DONE" else _ENDINGS.get(why or "", "failed"),
        ended_itself=why is None and exit_code is not None,
        exit_code=exit_code,
        was_cancelled=_ENDINGS.get(why or "") == "cancelled",
        why=reason if why and why not in ("OWNER", "RUNLIMIT") else None,
    )


def _waiting(info: JobInfo, reason: str) -> JobInfo:
    held, reported = info.word == "PSUSP", reason.strip(" ;-")
    if held:
        words = f"it is held; `bresume {info.job}` releases it"
    elif _HOPELESS in reason:
        words = "what it waits for can no longer be, or LSF has forgotten it"
    else:
        words = "LSF has not found room for it yet" + (f" ({reported})" if reported else "")
    return info._replace(pending_reason=words, is_held=held, dependency_never_satisfied=_HOPELESS in reason)
