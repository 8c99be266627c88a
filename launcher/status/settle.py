"""settle(run): whether a submission to Slurm or PBS arrived, if sbatch or qsub gave no answer.

A script is sent once. Where it is not certain whether it arrived, its path, which is no other's, is looked
for in the queue and in what accounting knows. Only what two questions, some seconds apart, have not found
was never queued: a scheduler that was held up may still take what its command had long given up.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

from castoff.launcher.process.locks import locked
from castoff.launcher.runs.directory import check_trusted
from castoff.launcher.runs.records import Send, Start, Submission, read
from castoff.launcher.runs.run import LOCK, RunDirectory
from castoff.launcher.schedulers.base_queue import Answer, Queue
from castoff.launcher.schedulers.job_info import JobInfo
from castoff.launcher.status.survey import RunRecords

APART = 5.0
"""Seconds between the two questions."""

_POLL = 1.0


def settle(run: RunDirectory, queue: Queue, *, patience: float = 0.0, refused: bool = False) -> bool:
    """Find out from its scheduler's queue what became of a run's unclear send; write it into submission.json.

    A job that was found is adopted: its id is written down. A send that two questions have not found gets an
    error that says so, and may be repeated; of one that was `refused`, one question is enough. Asks until
    that is decided, or `patience` seconds have passed. The caller holds the run's lock. Whether all is
    certain by now.

    Raises:
        CastoffError: a record cannot be read.
        OSError: it cannot be written.
    """
    give_up = time.monotonic() + patience
    records = RunRecords(run, held=True)
    if records.queued and queue.elsewhere(records.clusters):
        return records.unclear is None
    while not _decide(run, queue, queue.ask(()), refused=refused):
        if time.monotonic() >= give_up:
            return False
        time.sleep(_POLL)
    return True


def decide(run: RunDirectory, queue: Queue, answer: Answer, of: Send) -> None:
    """The same by an answer that was asked for when the run's lock was free, and `of` was its unclear send.

    Raises:
        CastoffError: a record cannot be read.
        OSError: it cannot be written, or somebody else holds the lock, who may be sending.
    """
    check_trusted(run.path)
    with locked(run.path / LOCK, patience=0.5):
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
    """What a question has brought to light of a send."""
    if job is not None:
        send.job = job
    elif refused:
        send.error = send.unclear
    elif send.asked is None or send.asked > now:  # a clock that was set back: begin anew
        send.asked = now
    elif now - send.asked >= APART:
        words = f": {send.unclear}" if send.unclear else ""
        send.error = f"there was no answer{words}; the queue, queried twice, has no such job"


def _candidates(
    run: RunDirectory, queue: Queue, answer: Answer, submission: Submission
) -> dict[str, set[int | None]] | None:
    """The jobs of this script that are nobody's yet, each with the indices that are known of it.

    None: the scheduler does not say.
    """
    owned = {send.job for send in submission.all_sends}
    script = str(run.script)
    reported: list[JobInfo] | None = [one for one in answer.jobs.values() if one.runs(script)]
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
    """The job of the last send: jobs' numbers ascend, and so it is the first after those before it."""
    before = max(_number(one.job or "") for one in record.sends)
    indices = {*send.starts().values()}
    fitting = [job for job, known in candidates.items() if _number(job) > before and known <= indices]
    return min(fitting, key=_number, default=None)


def _number(job: str) -> int:
    """The number that a job's id begins with, as `7[].head` does; 0 where it begins with none."""
    digits = re.match(r"\d{1,18}", job)
    return int(digits[0]) if digits else 0
