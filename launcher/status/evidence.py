"""The facts about members of runs on a cluster: from the run's records, the queue's answer and accounting."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from castoff.launcher.runs.records import Send
from castoff.launcher.schedulers.base_queue import Answer, Key
from castoff.launcher.schedulers.job_info import JobInfo, member_job_id
from castoff.launcher.status.attempt import Attempt
from castoff.launcher.status.survey import RunRecords
from castoff.launcher.status.table import AGAIN, End, Facts, Job, Next, Records

_CLOCKS = 3.0
"""Seconds by which the clocks of a node and of the controller may differ."""

FILES_LAG = 60.0
"""Seconds until a network file system shows what another host wrote."""

_ENDS = ("COMPLETING", "E")
"""Slurm's and PBS's words for a job that is being ended, perhaps to be started again."""


class Evidence(NamedTuple):
    """What is known of a member of a run."""

    facts: Facts
    newest: Attempt | None = None
    """The member's newest attempt of the newest submission; None: the submission has begun no attempt
    of it.
    """
    key: Key | None = None
    """The attempt's job, or the next job if `facts.next` is about that one; None: no record names a job."""
    info: JobInfo | None = None
    """What the queue or accounting reports of the job `key`."""
    asks: bool = False
    """Whether accounting could decide the member's state, but has not been queried yet."""


@dataclass(frozen=True)
class Sources:
    """All that is known of a run. The last four fields are arguments of `SchedulerView`."""

    now: float
    lag: float
    """The queue's `lag`, in seconds."""
    records: RunRecords
    answer: Answer
    history: Mapping[str, list[JobInfo]] | None
    seen: Container[tuple[int, int]]

    def silence(self, key: Key | None) -> str | None:
        """Return why the queue has not answered about a job; None if it has."""
        return self.answer.silence_on([key[0] if key else None])

    def start_of(self, key: Key | None, attempt: Attempt) -> JobInfo | None:
        """Return what accounting reports of the start of a job that belongs to an attempt. None: nothing, or
        the start has not ended.
        """
        began = (attempt.start.time if attempt.start else None) or 0.0
        # Later starts belong to later attempts; accounting may list them before it lists the end of this one.
        starts = [start for start in self._starts(key) if start.start and start.start <= began + _CLOCKS]
        last = max(starts, key=lambda start: start.start or 0.0, default=None)
        return last if last and (last.stage in ("ended", "unknown") or last.was_requeued) else None

    def evidence(self, member: int) -> Evidence:
        """Return what is known of a member of the run."""
        own = self.records.own(member)
        newest = own[-1] if own else None
        send = self.records.place(member) if member in self.records.begin else None
        if unsent := self._unsent(member, newest, send):
            return Evidence(Facts(unsent))
        key = self.records.key(member, self._named(member, own, send))
        info = self._reported(key)
        facts = Facts(_of_attempt(newest), self._of_job(member, newest, key, info))
        if self.records.plan.sharing:
            facts = self._among_others(facts, member, newest, key, info)
        known = Evidence(facts, newest, key, info)
        if following := self._next(member, known):
            return following
        return self._over(known) if facts.job is Job.OVER and facts.records is not Records.CERTAIN else known

    def _among_others(
        self, facts: Facts, member: int, newest: Attempt | None, key: Key | None, info: JobInfo | None
    ) -> Facts:
        """Return the facts about a member that shares its job: the job may run long after the member."""
        if facts.records is Records.NOT_BEGUN and facts.job is Job.RUNNING:
            return facts._replace(job=Job.PENDING)  # it waits for its turn
        if facts.records in Records.DOUBTFUL | Records.KILLED and newest and newest.end:
            alone = member in self.records.cancelled_members
            if not alone and self._waits_again(newest, info):
                return facts._replace(job=Job.PENDING_AGAIN)
            if alone or not self._ended_with(newest.end.time, key, info):
                facts = facts._replace(records=Records.CERTAIN)
        return facts._replace(job=Job.OVER) if facts.records is Records.CERTAIN else facts

    def _waits_again(self, newest: Attempt, info: JobInfo | None) -> bool:
        """Whether a member may continue, although it has ended: its job has started again, or will."""
        if info is None or info.stage != "running":
            return info is not None and info.stage == "pending"
        if info.word in _ENDS:
            return newest.start is None  # it never ran, and does not now
        ended = newest.end.time if newest.end else None
        return ended is not None and info.start is not None and info.start > ended

    def _ended_with(self, ended: float | None, key: Key | None, info: JobInfo | None) -> bool:
        """Whether the scheduler may have ended a member, with its job."""
        cancelled = self._cancelled(key)
        if cancelled is not None:
            return ended is None or ended >= cancelled - _CLOCKS
        if info is not None and info.word in _ENDS:
            return ended is None or info.end is None or ended >= info.end - _CLOCKS
        if info is None or info.stage != "ended" or info.ended_itself:
            return False
        if ended is None or info.end is None:
            return True
        walltime = self.records.plan.walltime
        if info.ending == "walltime" and info.start is not None and walltime is not None:
            over = info.start + walltime - _CLOCKS
            if ended < over <= info.end:  # unless the limit was lowered meanwhile
                return False
        return abs(info.end - ended) < FILES_LAG

    def _unsent(self, member: int, newest: Attempt | None, send: Send | None) -> Records | None:
        """Return what is recorded of a member without a known job; None: the job is known, or the script was
        submitted by hand.
        """
        submission = self.records.submission
        if newest is not None or (send is not None and send.job is not None and send.error is None):
            return None
        if send is None and self.records.attempts.get(member):
            return Records.LEFT_OUT
        if (send.error if send else submission and submission.error) is not None:
            return Records.REFUSED
        if self.records.alive:
            return Records.SENDING
        if send is None:
            return Records.UNSENT
        return Records.UNCLEAR if submission else None

    def _named(self, member: int, own: list[Attempt], send: Send | None) -> str | None:
        """Return the id of a member's newest job, even if that job's attempt has not recorded anything
        yet.
        """
        if own and own[-1].job:
            return own[-1].job
        if len(own) > 1 and own[-2].restarted:
            return own[-2].job
        following = self.records.following(own[-2]) if len(own) > 1 else None
        return following or self.records.newest_job(member, send.job if send else None)

    def _of_job(self, member: int, newest: Attempt | None, key: Key | None, info: JobInfo | None) -> Job:
        if key is None and (newest is None or newest.end is None):
            return Job.NAMED_LATER if self._has_just_begun else Job.UNNAMED
        if info is None and self.silence(key):
            return Job.SILENT_HERE if self.answer.lasting else Job.SILENT
        if info is None or info.stage == "ended":
            return Job.OVER
        if info.stage == "pending" and newest and (member, newest.number) in self.seen:
            return Job.PENDING_AGAIN
        return {"pending": Job.PENDING, "running": Job.RUNNING}.get(info.stage, Job.STRANGE)

    @cached_property
    def _has_just_begun(self) -> bool:
        """Whether a script that has not recorded its job may still do so."""
        attempts = self.records.attempts.values()
        touched = max((one.touched for found in attempts for one in found), default=None)
        if touched is None:  # members that share the script's job may begin later
            touched = self.records.begun
        return self.now - touched < FILES_LAG

    def _next(self, member: int, known: Evidence) -> Evidence | None:
        """Return what is known of a member whose attempt another job resumes; None: the other job decides
        nothing.
        """
        facts, newest, _, info, _ = known
        following = self.records.following(newest) if newest and newest.last is None else None
        is_active = info is not None and info.is_active
        if newest is None or following is None or (is_active and newest.end is None):
            return None
        if facts.job is Job.PENDING_AGAIN:
            return None
        if is_active and newest.next is None:  # the next job in a chain waits until this job is gone
            return known._replace(facts=facts._replace(next=Next.BEGINS))
        key = self.records.key(member, following)
        info = self._reported(key)
        facts = facts._replace(next=self._of_next(key, info))
        return None if facts.next is Next.NONE else Evidence(facts, newest, key, info)

    def _of_next(self, key: Key | None, info: JobInfo | None) -> Next:
        if info is None:
            silent, cancelled = self.silence(key), self._cancelled(key) is not None
            return Next.SILENT if silent else Next.CANCELLED if cancelled else Next.NONE
        if info.stage == "ended":
            is_cancelled = info.ending == "cancelled" and not info.dependency_never_satisfied
            return Next.CANCELLED if is_cancelled else Next.NONE
        return {"pending": Next.PENDING, "running": Next.BEGINS}.get(info.stage, Next.STRANGE)

    def _over(self, known: Evidence) -> Evidence:
        """Return what is known of a member whose job, according to the queue, is over."""
        facts, newest, key, info, _ = known
        asks = info is None or (info.ended_itself and facts.records not in AGAIN)
        end = None
        if asks and (newest is None or facts.records in AGAIN):
            info = self._newest_start(key) or info
            if info is None and newest is None and self._left_its_array(key):
                end = End.CANCELLED
        elif asks and newest:
            start = self.start_of(key, newest)
            # Only accounting of a step shows that a process was killed because memory ran out.
            unanswered = newest.was_killed or (start is None and newest.end is None)
            info = start or info
            ended = (info.end if info and info.ended_itself else None) or 0.0
            if unanswered and self.history is not None and self.now - ended < self.lag:
                end = End.LATE
        facts = facts._replace(end=end or _of_end(newest, info), cancelled=self._cancelled(key) is not None)
        return Evidence(facts, newest, key, info, asks and self.history is None and key is not None)

    def _reported(self, key: Key | None) -> JobInfo | None:
        """Return what the queue reports of a job; None if the queue does not list the job."""
        info = self.answer.jobs.get(key) if key else None
        whole = self.answer.jobs.get((key[0], None)) if key else None
        if info is None and whole and whole.is_active:
            info = whole  # the queue does not list the array's members yet
        return info if info and self.records.owns(info) else None

    def _starts(self, key: Key | None) -> list[JobInfo]:
        """Return what accounting knows of a job's starts."""
        if key is None or self.history is None:
            return []
        starts = self.history.get(key[0], [])
        return [start for start in starts if start.task == key[1] and self.records.owns(start)]

    def _newest_start(self, key: Key | None) -> JobInfo | None:
        """Return what accounting reports of a job's newest start; None if the start has not ended, or is not
        listed.
        """
        newest = max(self._starts(key), key=lambda start: start.submitted or 0.0, default=None)
        return newest if newest and newest.stage in ("ended", "unknown") else None

    def _left_its_array(self, key: Key | None) -> bool:
        """Whether a member's job is unknown to the queue and accounting, although one of the two knows its
        array.
        """
        return key is not None and key[1] is not None and self.history is not None and key[0] in self._known

    @cached_property
    def _known(self) -> frozenset[str]:
        """The ids of the run's jobs and arrays that the queue or accounting lists."""
        started = (start for starts in (self.history or {}).values() for start in starts)
        return frozenset(
            info.job for info in (*self.answer.jobs.values(), *started) if self.records.owns(info)
        )

    def _cancelled(self, key: Key | None) -> float | None:
        """When castoff cancelled a job, or the member's job; None: it did not."""
        names = (key[0], member_job_id(*key)) if key is not None else ()
        return min(
            (self.records.cancelled[name] for name in names if name in self.records.cancelled), default=None
        )


def _of_attempt(newest: Attempt | None) -> Records:
    if newest is None:
        return Records.NOT_BEGUN
    if newest.is_certain:
        return Records.CERTAIN
    if newest.is_active:
        return Records.RESUMES if newest.last is None else Records.REQUEUED
    if newest.end is None:
        return Records.BEGUN
    return Records.KILLED if newest.was_killed else Records.DOUBTFUL


def _of_end(newest: Attempt | None, info: JobInfo | None) -> End:
    # a start that was ended in order to requeue the job
    if info is None or info.stage in ("pending", "running"):
        return End.NOTHING
    if info.stage == "unknown":
        return End.STRANGE
    if info.may_have_been_killed and newest and newest.end is None and not newest.finished:
        return End.DONE_OR_KILLED
    if info.was_cancelled:
        return End.CANCELLED
    return End.DONE if info.ending == "done" else End.OTHERWISE
