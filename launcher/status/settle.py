"""settle(run): whether what was sent to Slurm or PBS arrived, where sbatch's or qsub's answer was none.

A script is sent once. Where it is not certain whether it arrived, its path, which is no other's, is looked
for in the queue and in what accounting knows. Only what two questions, some seconds apart, have not found
was never queued: a scheduler that was held up may still take what its command had long given up.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Mapping

from launcher.runs.directory import check_trusted
from launcher.runs.records import Send, Start, Submission, read
from launcher.runs.run import LOCK, Run, locked
from launcher.schedulers.jobs import JobTold
from launcher.schedulers.queue import Answer, Queue
from launcher.schedulers.registry import queued_of
from launcher.status.survey import Scene

APART = 5.0
"""Seconds between the two questions."""

_POLL = 1.0


def settle(run: Run, *, patience: float = 0.0, environ: Mapping[str, str] | None = None) -> bool:
    """Find out what became of the sends of a run that are unclear, and write it into submission.json.

    A job that was found is adopted: its id is written down. One that two questions have not found gets an
    error that says so, and may be sent again. Asks until that is decided, or `patience` seconds have
    passed. The caller holds the run's lock. Whether all is certain by now.

    Raises:
        CastoffError: a record cannot be read.
        OSError: it cannot be written.
    """
    queue = queued_of(run.facts().scheduler).queue(environ)
    give_up = time.monotonic() + patience
    scene = Scene(run, held=True)
    if scene.queued and queue.elsewhere(scene.clusters):
        return not scene.unclear
    while not (settled := _decide(run, queue, queue.ask(()))):
        left = give_up - time.monotonic()
        if left <= 0:
            break
        time.sleep(min(_POLL, left))
    return settled


def decide(run: Run, queue: Queue, answer: Answer, of: Collection[float | None]) -> None:
    """The same by an answer that was asked for when the run's lock was free.

    `of`: the times of the sends that were unclear then.

    Raises:
        CastoffError: a record cannot be read.
        OSError: it cannot be written, or somebody else holds the lock, who may be sending.
    """
    check_trusted(run.path)
    with locked(run.path / LOCK, patience=0.5):
        _decide(run, queue, answer, of)


def _decide(run: Run, queue: Queue, answer: Answer, of: Collection[float | None] | None = None) -> bool:
    record = run.submission()
    unclear = [place for place, send in enumerate(record.sends) if send.is_unclear] if record else []
    if record is None or not unclear:
        return True
    if of is not None and any(record.sends[place].time not in of for place in unclear):
        return False
    if answer.silence or (candidates := _candidates(run, queue, answer, record)) is None:
        return False
    found = _match(record.sends, candidates)
    for place in unclear:
        _write_down(record.sends[place], found.get(place), time.time())
    record.job = record.job or next((send.job for send in record.sends if send.job), None)
    run.write_submission(record)
    return not any(send.is_unclear for send in record.sends)


def _write_down(send: Send, job: str | None, now: float) -> None:
    """What a question has brought to light of a send."""
    if job is not None:
        send.job = job
    elif send.asked is None or send.asked > now:  # a clock that was set back: begin anew
        send.asked = now
    elif now - send.asked >= APART:
        words = f": {send.unclear}" if send.unclear else ""
        send.error = f"there was no answer{words}; the queue, asked twice, has no such job"


def _candidates(
    run: Run, queue: Queue, answer: Answer, submission: Submission
) -> dict[str, set[int | None]] | None:
    """The jobs of this script that are nobody's yet, each with the indices that are known of it.

    None: the scheduler does not say.
    """
    owned = {send.job for send in submission.all_sends}
    script = str(run.script)
    told: list[JobTold] | None = [one for one in answer.jobs.values() if one.runs(script)]
    if not any(one.job not in owned for one in told or []):
        first = min(send.time or 0.0 for send in submission.sends if send.is_unclear)
        told = queue.find(script, run.facts().name, first)
    if told is None:
        return None
    found: dict[str, set[int | None]] = {}
    for one in told:
        if one.job not in owned:
            found.setdefault(one.job, set()).add(one.task)
    for _, _, folder in run.attempts():
        start = read(folder / "start.json", Start)
        if start and start.job and start.job not in owned:
            found.setdefault(start.job, set())
    return found


def _match(sends: list[Send], candidates: Mapping[str, set[int | None]]) -> dict[int, str]:
    """Which job is whose. Sends are made one after the other, and so their jobs' numbers ascend."""
    found: dict[int, str] = {}
    numbers = {job: number for job in candidates if (number := _number(job)) is not None}
    last = 0
    for place, send in enumerate(sends):
        if send.job is not None:
            last = _number(send.job) or last
        elif send.error is None:
            later = [number for one in sends[place:] if one.job and (number := _number(one.job)) is not None]
            indices = {*send.starts().values()}
            for job in sorted(numbers, key=lambda job: numbers[job]):
                before = not later or numbers[job] < min(later)
                if numbers[job] > last and before and candidates[job] <= indices:
                    found[place], last = job, numbers[job]
                    break
    return found


def _number(job: str) -> int | None:
    """The number that a job's id begins with, as `7[].head` does."""
    digits = re.match(r"\d{1,18}", job)
    return int(digits[0]) if digits else None
