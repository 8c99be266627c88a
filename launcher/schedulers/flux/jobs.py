"""Reads Flux's answers about jobs.

`flux jobs --json` of flux-core 0.88 reports pending, running and, as long as Flux keeps them, ended jobs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from castoff.launcher.schedulers.job_info import JobInfo, whole
from castoff.launcher.schedulers.page import Page, Wanted, check_length, everything

_ENDINGS = {"COMPLETED": "done", "CANCELED": "cancelled", "TIMEOUT": "walltime", "FAILED": "failed"}
"""castoff's ending for each of Flux's results of a job."""

_STAGES = {
    **dict.fromkeys(("NEW", "DEPEND", "PRIORITY", "SCHED"), "pending"),
    **dict.fromkeys(("RUN", "CLEANUP"), "running"),
    **dict.fromkeys(_ENDINGS, "ended"),
}
"""castoff's stage for each of Flux's states and results of a job."""

_NEVER_RAN = -128
"""The returncode of a job that was cancelled before it ran."""

_LOST = "node failure on "
"""The beginning of the note in a job's exception if Flux lost the host of the job's script (seen on
0.88.0).
"""

_LIST = re.compile(r'\s*\{\s*"jobs"\s*:\s*\[')
_NEXT = re.compile(r"[\s,]*(?=[^\s,])")

_ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


def decimal(job: str) -> str | None:
    """Return a job's id as a number; None: the text is not an id. flux batch prints `ƒ…`, in base 58, or `f…`
    in ASCII.
    """
    if re.fullmatch(r"[0-9]{1,20}", job):
        return job
    if not re.fullmatch(rf"[fƒ][{_ALPHABET}]{{1,12}}", job):
        return None
    number = 0
    for letter in job[1:]:
        number = number * 58 + _ALPHABET.index(letter)
    return str(number)


def f58(job: str) -> str:
    """Write a decimal id as Flux does in plain ASCII: `f`, then base 58."""
    number, letters = int(job), ""
    while number or not letters:
        number, letter = divmod(number, 58)
        letters = _ALPHABET[letter] + letters
    return f"f{letters}"


def parse_denied(errors: str) -> set[str]:
    """Read the ids that Flux reports as unknown."""
    reported = re.findall(r"^JobID (\S+) unknown$", errors, re.MULTILINE)
    return {number for job in reported if (number := decimal(job)) is not None}


def parse_queue(page: Page, wanted: Wanted = everything) -> list[JobInfo]:
    """Read the jobs in an answer; none if the answer was cut off or is not JSON."""
    try:
        return [
            _job(entry)
            for entry in _listed(page)
            if isinstance(entry, dict) and isinstance(entry.get("id"), int)
            if wanted(str(entry["id"]), _script(entry))
        ]
    except ValueError:
        return []


def _listed(page: Page) -> Iterator[Any]:
    """Yield the entries of the list in an answer as they arrive; an answer about a single job is not a list.

    Raises:
        ValueError: the answer was cut off, or is not JSON.
        Unreadable: a job is longer than `LONGEST_RECORD`.
    """
    rest = ""
    while not (begin := _LIST.match(rest)):
        part = next(page, None)
        if part is None:
            yield json.loads(rest)
            return
        rest += part
        check_length(rest)
    decode, position = json.JSONDecoder().raw_decode, begin.end()
    while True:
        while (following := _NEXT.match(rest, position)) and rest[following.end()] != "]":
            try:
                entry, position = decode(rest, following.end())
            except ValueError:  # a part of the entry has not arrived yet
                break
            yield entry
        rest, position = rest[position:], 0
        check_length(rest)
        part = next(page, None)
        if part is None:
            json.loads(f'{{"jobs": [{rest}')  # an error unless only the end of the list is left
            return
        rest += part


def _script(fields: Mapping[str, Any]) -> str:
    """Return the path of a job's script, from the job's working directory, which is the run directory."""
    return f"{fields.get('cwd')}/job.sh"


def _job(fields: Mapping[str, Any]) -> JobInfo:
    word = str(fields.get("status") or fields.get("state") or "")  # the result, once the job has ended
    info = JobInfo(
        job=str(fields["id"]),
        task=None,
        word=word,
        stage=_STAGES.get(word, "unknown"),
        submitted=_time(fields.get("t_submit")),
        start=_time(fields.get("t_run")),
        script=_script(fields),
        folder=str(fields.get("cwd") or ""),
    )
    if info.stage == "ended":
        return _ended(info, fields)
    return _waiting(info, fields) if info.stage == "pending" else info


def _ended(info: JobInfo, fields: Mapping[str, Any]) -> JobInfo:
    """Add to an ended job how the job ended."""
    exception = fields.get("exception")
    exception = exception if isinstance(exception, dict) else {}
    fatal = (
        str(exception.get("type")) if exception.get("occurred") and not exception.get("severity") else None
    )
    note, code = str(exception.get("note") or ""), whole(str(fields.get("returncode")))
    reasons = {
        "cancel": note,
        "dependency": f"its condition can no longer be met ({note})",
    }
    reason = None if fatal in (None, "timeout") else reasons.get(fatal, f"Flux ended it ({fatal}): {note}")
    ran = info.start is not None and code != _NEVER_RAN
    exit_code = None if not ran or code is None else code if code >= 0 else 128 - code
    return info._replace(
        ending="node-failure" if fatal == "exec" and note.startswith(_LOST) else _ENDINGS[info.word],
        ended_itself=fatal is None and exit_code is not None,
        exit_code=exit_code,
        dependency_never_satisfied=fatal == "dependency",
        why=reason or None,
        end=_time(fields.get("t_cleanup")) or _time(fields.get("t_inactive")),
    )


def _waiting(info: JobInfo, fields: Mapping[str, Any]) -> JobInfo:
    """Add to a pending job why the job waits, in plain words. If a job can never run, Flux ends it at
    once.
    """
    is_held = fields.get("urgency") == 0
    dependencies = fields.get("dependencies")
    if needed := ", ".join(map(str, dependencies if isinstance(dependencies, list) else ())):
        words = f"it waits for other jobs ({needed})"
    elif is_held:
        words = f"it is held (urgency 0); `flux job urgency {info.job} default` releases it"
    elif info.word == "SCHED":
        words = "Flux has not found room for it yet"
    else:
        words = "Flux has not looked at it yet"
    return info._replace(pending_reason=words, is_held=is_held)


def _time(value: object) -> float | None:
    """Read a time in seconds since the epoch; None: the value is not such a time."""
    return float(value) if isinstance(value, (int, float)) and 0 < value < 1e11 else None
