"""settle(run): finds out whether a submission arrived, if the submit command gave no clear answer.

castoff submits a script once. If it is not certain whether the submission arrived, castoff looks for the
script's path, which is unique, in the queue and in accounting. Only a script that two queries, some seconds
apart, have not found was never queued: a slow scheduler may accept a submission long after the submit command
gave up.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from castoff.launcher import clock
from castoff.launcher.runs.records import Send, Start, Submission, read
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.schedulers.base_queue import Answer, Queue
from castoff.launcher.schedulers.job_info import JobInfo
from castoff.launcher.status.survey import RunRecords

APART = 5.0
"""Seconds between the two queries that must both find no job."""

_POLL = 1.0


def settle(run: RunDirectory, queue: Queue, *, patience: float = 0.0, refused: bool = False) -> bool:
    """Find out from the queue what became of a submission without a clear answer, and record the result in
    submission.json. Return whether the question is decided.

    If a job is found, its id is recorded. If two queries find no job, an error is recorded, and the
    submission may be repeated; if the scheduler `refused` the submission, one query is enough. Queries are
    repeated until that is decided, or for `patience` seconds.

    Raises:
        CastoffError: a record cannot be read.
        OSError: a record cannot be written.
    """
    records = RunRecords(run, held=True)
    if records.queued and queue.elsewhere(records.clusters):
        return records.unclear is None
    return clock.until(lambda: _decide(run, queue, queue.ask(()), refused=refused), _POLL, patience)


def decide(run: RunDirectory, queue: Queue, answer: Answer, of: Send) -> None:
    """Decide the same from an answer that was given while the run's lock was free and `of` was the unclear
    submission.

    Raises:
        CastoffError: a record cannot be read.
        OSError: a record cannot be written, or another process holds the lock and may be submitting.
    """
    with run.locked(patience=0.5):
        _decide(run, queue, answer, of)


def _decide(
    run: RunDirectory, queue: Queue, answer: Answer, of: Send | None = None, *, refused: bool = False
) -> bool:
    record = run.submission()
    send = record.unclear if record else None
    if record is None or send is None:
        return True
    if of is not None and send.time != of.time:
        return False
    if answer.silence or (candidates := _candidates(run, queue, answer, record)) is None:
        return False
    _record(send, _match(record, send, candidates), time.time(), refused)
    record.job = record.job or send.job
    run.write_submission(record)
    return record.unclear is None


def _record(send: Send, job: str | None, now: float, refused: bool) -> None:
    """Record what the queries have shown about a submission."""
    if job is not None:
        send.job = job
    elif refused:
        send.error = send.unclear
    elif send.asked is None or send.asked > now:  # the clock was set back: begin again
        send.asked = now
    elif now - send.asked >= APART:
        words = f": {send.unclear}" if send.unclear else ""
        send.error = f"there was no answer{words}; the queue, queried twice, has no such job"


def _candidates(
    run: RunDirectory, queue: Queue, answer: Answer, submission: Submission
) -> dict[str, set[int | None]] | None:
    """Return the jobs of a run's script that no record names yet, each with its known array indices. None:
    the scheduler does not answer.
    """
    owned = {send.job for send in submission.all_sends}
    script = str(run.script)
    reported: list[JobInfo] | None = [job for job in answer.jobs.values() if job.runs(script)]
    if not any(one.job not in owned for one in reported or []):
        reported = queue.find(script, run.facts().name, submission.sends[-1].time or 0.0)
    if reported is None:
        return None
    found: dict[str, set[int | None]] = {}
    for one in reported:
        if one.job not in owned:
            found.setdefault(one.job, set()).add(one.task)
    for _, _, folder in run.attempts():
        start = read(folder / "start.json", Start)
        if start and start.job and start.job not in owned:
            found.setdefault(start.job, set())
    return found


def _match(record: Submission, send: Send, candidates: Mapping[str, set[int | None]]) -> str | None:
    """Return the job of the last submission: the first after the recorded jobs, since job numbers ascend."""
    before = max(_number(one.job or "") for one in record.sends)
    indices = {*send.starts().values()}
    fitting = [job for job, known in candidates.items() if _number(job) > before and known <= indices]
    return min(fitting, key=_number, default=None)


def _number(job: str) -> int:
    """Return the number at the beginning of a job's id, such as 7 in `7[].head`; 0 if there is none."""
    digits = re.match(r"\d{1,18}", job)
    return int(digits[0]) if digits else 0
