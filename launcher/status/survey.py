"""A run on Slurm or PBS as its own records tell of it: what was sent, and what its scripts wrote down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from launcher.runs.records import Facts, Send, Submission, begins
from launcher.runs.run import Run
from launcher.schedulers.jobs import JobTold
from launcher.schedulers.queue import Answer, Key
from launcher.schedulers.registry import queued_of
from launcher.status.scenes import Attempt


class RecordsState(NamedTuple):
    """What changes when a run goes on."""

    attempts: tuple[tuple[int, int, bool], ...]
    """Member, number, and whether it has no ending yet."""
    jobs: frozenset[str]


class QueuedRun:
    """A run on Slurm or PBS as its directory tells of it."""

    def __init__(
        self,
        run: Run,
        submission: Submission | None,
        plan: Facts,
        attempts: Mapping[int, list[Attempt]],
        *,
        being_sent: bool,
    ):
        """`submission`: None where its script was submitted by hand. `being_sent`: its lock is held."""
        self.run = run
        self.submission = submission
        self.plan = plan
        self.attempts = attempts
        self.being_sent = being_sent
        self.sends = submission.sends if submission else []
        self.begin = begins(submission, plan)
        self.numbers = sorted({*range(plan.array_count or 1), *attempts})
        self._of_job = {send.job: send for send in (submission.all_sends if submission else []) if send.job}
        self._places: dict[int, Send] = {}
        for send in self.sends:
            for member in send.starts():
                self._places.setdefault(member, send)  # of a chain the first link
        self._chain = [send.job for send in self.sends if send.link is not None]
        self._job_of_script = None if submission else self._first_job()

    @property
    def job(self) -> str | None:
        """The job's id; the first one's, where it took several."""
        if self.submission is None:
            return self._job_of_script
        return self.submission.job or next((send.job for send in self.sends if send.job), None)

    @property
    def clusters(self) -> frozenset[str]:
        """Slurm's names of the clusters that have, or may have, jobs of it, as far as they are known."""
        sent = any(send.error is None for send in self.sends)
        recorded = self.submission.cluster if self.submission and sent else None
        found = {recorded}
        for member, attempts in self.attempts.items():
            telling = [one for one in attempts if not one.is_certain]
            telling += [] if recorded else self.own(member)
            found |= {one.start.cluster for one in telling if one.start}
        return frozenset(name for name in found if name)

    @property
    def unclear(self) -> list[Send]:
        """What was sent, and may or may not have arrived."""
        return [] if self.being_sent else [send for send in self.sends if send.is_unclear]

    def told_by(self, answer: Answer) -> list[tuple[str, str]]:
        """What the queue says of its jobs: their states, and why they wait."""
        own = {send.job for send in self.sends} | {self.job}
        return sorted(((one.word, one.waits) for one in answer.jobs.values() if one.job in own), key=str)

    @property
    def seen(self) -> frozenset[tuple[int, int]]:
        """The attempts that have begun: member and number."""
        return frozenset((member, one.number) for member, found in self.attempts.items() for one in found)

    @property
    def state_of_records(self) -> RecordsState:
        """The records, as far as the scheduler should be asked when they have changed."""
        attempts = tuple(
            (member, one.number, one.end is None) for member, found in self.attempts.items() for one in found
        )
        return RecordsState(attempts, frozenset(self.jobs))

    @property
    def jobs(self) -> set[str]:
        """The ids of all jobs that its scheduler may still have something to say about."""
        own = {self.job, *(send.job for send in self.sends)}
        for found in self.attempts.values():
            own |= {one.job for one in found if not one.is_certain} | {
                one.next for one in found[-2:]
            }  # the last may not have said whose it is
        return {job for job in own if job is not None}

    def following(self, one: Attempt) -> str | None:
        """The job that goes on after an attempt; on PBS alone it is another one."""
        if one.next is not None:
            return one.next
        if one.job not in self._chain or (one.end and one.end.ending not in ("again", "walltime")):
            return None
        return next(iter(self._chain[self._chain.index(one.job) + 1 :]), None)

    def needs_queue(self) -> bool:
        """Whether the records leave anything in doubt that the scheduler may know."""
        if self.unclear:
            return True
        for found in self.attempts.values():
            *past, newest = found
            if not newest.is_certain or not all(one.is_certain or one.goes_on for one in past):
                return True
            if newest.last is None and self.following(newest) is not None:
                return True
        return any(
            (send := self.place(member)) is not None
            and send.error is None
            and (send.job is not None or not self.being_sent)
            and not self.own(member)
            for member in self.begin
        )

    def place(self, member: int) -> Send | None:
        """What sends a member off in the newest submission; None: nothing does."""
        if self.submission is not None:
            return self._places.get(member)
        return Send(self._job_of_script, 0, self.plan.array_count)

    def key(self, member: int, job: str | None) -> Key | None:
        """Where a member stands in a job's array; None where it is not known to."""
        if job is None:
            return None
        send = self._of_job.get(job)
        if send is not None:
            return (job, send.starts().get(member))
        in_array = queued_of(self.plan.scheduler).is_array(job, self.plan.array_count)
        return (job, member if in_array else None)

    def is_told(self, told: JobTold) -> bool:
        """Whether a job of that id is this run's, and not another cluster's that has the same."""
        return self.submission is None or told.runs(str(self.run.script))

    def own(self, member: int) -> list[Attempt]:
        """The attempts that the newest submission has begun."""
        begin, send = self.begin.get(member), self.place(member)
        if begin is None or send is None:
            return []
        return [
            one
            for one in self.attempts.get(member, [])
            if one.number >= begin
            and (queued_of(self.plan.scheduler).ids_change or send.job is None or one.job in (None, send.job))
        ]

    def _first_job(self) -> str | None:
        found = (one.job for attempts in self.attempts.values() for one in reversed(attempts))
        return next((job for job in found if job), None)
