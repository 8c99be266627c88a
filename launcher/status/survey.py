"""RunRecords(run): what a run directory records of submissions and attempts. No scheduler is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import chain
from pathlib import Path

from castoff.launcher.runs.directory import names_in
from castoff.launcher.runs.owner import is_alive, owns_latest_submission
from castoff.launcher.runs.records import (
    SET_ASIDE,
    Cancelled,
    Next,
    Send,
    begins,
    read,
    record_bytes,
    set_aside_hosts,
)
from castoff.launcher.runs.run import STOP, RunDirectory
from castoff.launcher.schedulers.base_queue import Key
from castoff.launcher.schedulers.job_info import JobInfo
from castoff.launcher.schedulers.local.control import cancelled_members
from castoff.launcher.schedulers.registry import queued
from castoff.launcher.status.attempt import Attempt, attempt_in, changed

CANCELLED = "cancelled.json"
"""The file in the run directory that lists the jobs castoff has cancelled."""


_SHARED = ".shared-"
"""The first part of the name of a folder in which a shared job lists the members that it leaves to a copy."""

_THREADS, _MANY = 16, 64
"""Threads that read the records of many attempts, and how many are many: a busy file system may take 20 ms to
answer, but answers several at once.
"""


def _attempts_in(folders: list[tuple[int, Path]], requeues: bool) -> Iterator[Attempt]:
    """The attempts with these numbers and folders."""
    if len(folders) < _MANY:
        return (attempt_in(number, folder, requeues) for number, folder in folders)
    from concurrent.futures import ThreadPoolExecutor  # imported late, since most runs have few attempts

    def part(first: int) -> list[Attempt]:
        return [attempt_in(number, folder, requeues) for number, folder in folders[first : first + size]]

    size = -(-len(folders) // _THREADS)
    try:
        with ThreadPoolExecutor(_THREADS) as pool:
            return chain.from_iterable([*pool.map(part, range(0, len(folders), size))])
    except RuntimeError:  # a login node may allow a user only a few threads
        return (attempt_in(number, folder, requeues) for number, folder in folders)


class RunRecords:
    """What a run directory shows before any scheduler is asked."""

    def __init__(self, run: RunDirectory, *, held: bool = False, earlier: RunRecords | None = None):
        """Read a run's directory. `held`: the caller holds the run's lock, and has not submitted anything
        yet. `earlier`: the same run's records as read before; what is final in them is not read again.

        Raises:
            CastoffError: a record cannot be read.
        """
        self.run = run
        self.held = held
        # Check the lock before the records, so that a record written in between still counts.
        self.alive = not held and is_alive(run)
        """Whether a process holds the run's lock; with a queued scheduler, this means that the run is being
        submitted.
        """
        names = names_in(run.path)
        self.is_there = bool(names)
        self.stop_requested = STOP in names
        cancelled = read(run.path / CANCELLED, Cancelled) if CANCELLED in names else None
        self.cancelled: Mapping[str, float] = cancelled.jobs if cancelled else {}
        """The ids of the jobs that castoff has cancelled, including those of single members."""
        self.submission = submission = run.submission()
        """The newest submission; None if castoff did not submit the run."""
        self.set_aside = set_aside_hosts(run.path) if SET_ASIDE in names else []
        """The names of the hosts that the run's jobs have set aside."""
        self.plan = run.facts()
        self.cancelled_members = cancelled_members(run) if self.plan.sharing else set()
        """The members that castoff has cancelled alone, if they share jobs."""
        self.scheduler = queued(self.plan.scheduler)
        """The scheduler that the run was submitted to; None: castoff's own, or an unknown one."""
        requeues = self.plan.requeue_how == "requeue" and self.scheduler is not None
        self.attempts: dict[int, list[Attempt]] = {}
        """The attempts of each member."""
        final = {} if earlier is None else {one.folder: one for one in earlier.final_attempts()}
        begun = run.attempts()
        read_now = _attempts_in([one[1:] for one in begun if one[2] not in final], requeues)
        for member, _, folder in begun:
            self.attempts.setdefault(member, []).append(final.get(folder) or next(read_now))
        self._handed = _handed_on(run) if self.plan.sharing else {}
        for member, found in self.attempts.items():
            self._hand_on(member, found)
            if found[-1].restarted:  # the next attempt is about to begin, in the same job
                found[-1] = found[-1]._replace(end=None)
        self.begin = begins(submission, self.plan)
        """The members that the newest submission starts, and the attempt that each starts with."""
        self.numbers = sorted({*self.plan.members, *self.attempts})
        """The numbers of the run's members."""
        # castoff itself runs a launch in an allocation, as the local scheduler runs its jobs.
        self.begun = changed(run.path) if self.plan.by_script else 0.0
        """When the directory of a script that castoff did not submit was last changed; otherwise 0."""
        self.queued = self.scheduler is not None and not owns_latest_submission(run)
        """Whether a scheduler's queue may know the run; castoff's own scheduler has no queue."""
        self.sends = submission.sends if submission else []
        self._of_job = {send.job: send for send in (submission.all_sends if submission else []) if send.job}
        self._places: dict[int, Send] = {}
        self._indices: dict[str, dict[int, int | None]] = {}
        """The members that each job starts, with their indices in the array, once somebody has asked."""
        for send in self.sends:
            for member in send.starts():
                self._places.setdefault(member, send)  # the first job of a chain
        self._chain = [send.job for send in self.sends if send.link is not None]

    def _hand_on(self, member: int, found: list[Attempt]) -> None:
        """Let the last attempt of each shared job name the job that continues the member."""
        for place, one in enumerate(found):
            following = self.newest_job(member, one.job)
            if following != one.job and (place == len(found) - 1 or found[place + 1].job != one.job):
                found[place] = one._replace(next=following)

    def newest_job(self, member: int, job: str | None) -> str | None:
        """Return the job that runs a member, if `job` shared by it may have left it to a copy of itself."""
        passed = {job}
        while job is not None and (following := self._handed.get((job, member))) not in {None, *passed}:
            passed.add(following)
            job = following
        return job

    def final_attempts(self) -> Iterator[Attempt]:
        """The attempts whose records do not change any more."""
        for found in self.attempts.values():
            yield from (one for one in found if one.end is not None and one.is_certain)

    @property
    def job(self) -> str | None:
        """The id of the run's job; if there are several jobs, of the first."""
        if self.submission is not None:
            return self.submission.job or next((send.job for send in self.sends if send.job), None)
        jobs = (attempt.job for attempts in self.attempts.values() for attempt in reversed(attempts))
        return next((job for job in jobs if job), None)

    @property
    def clusters(self) -> frozenset[str]:
        """The names of the Slurm clusters that have, or may have, jobs of the run."""
        sent = any(send.error is None for send in self.sends)
        recorded = self.submission.cluster if self.submission and sent else None
        found = {recorded}
        for member, attempts in self.attempts.items():
            uncertain = [attempt for attempt in attempts if not attempt.is_certain]
            uncertain += [] if recorded else self.own(member)
            found |= {one.start.cluster for one in uncertain if one.start}
        return frozenset(name for name in found if name)

    @property
    def unclear(self) -> Send | None:
        """The submission that may or may not have arrived; None: there is no such submission."""
        return self.submission.unclear if self.submission and not self.alive else None

    @property
    def state_of_records(self) -> frozenset[tuple[int, int, bool]]:
        """A value that changes when an attempt begins or ends: each attempt's member and number, and whether
        it lacks an ending.
        """
        attempts = ((member, one) for member, found in self.attempts.items() for one in found)
        return frozenset((member, one.number, one.end is None) for member, one in attempts)

    @property
    def jobs(self) -> set[str]:
        """The ids of all jobs about which the scheduler may still know something new."""
        own = {self.job, *(send.job for send in self.sends), *self._handed.values()}
        for found in self.attempts.values():
            own |= {one.job for one in found if not one.is_certain}
            own |= {one.next for one in found[-2:]}
            if found[-1:] and found[-1].job is None:  # the last attempt has not recorded its job yet
                own |= {one.job for one in found[-2:]}
        return {job for job in own if job is not None}

    def following(self, one: Attempt) -> str | None:
        """Return the other job that resumes an attempt; None if no other job does: a requeued job keeps its
        id.
        """
        if one.next is not None:
            return one.next if one.end is None or one.end.ending == "resume" else None
        if one.job not in self._chain or (one.end and one.end.ending not in ("resume", "walltime")):
            return None
        return next(iter(self._chain[self._chain.index(one.job) + 1 :]), None)

    def needs_queue(self) -> bool:
        """Whether the records leave something open that the scheduler may know about the run."""
        if self.unclear:
            return True
        for found in self.attempts.values():
            *past, newest = found
            if not newest.is_certain or not all(
                one.is_certain or one.is_active or one.gave_up for one in past
            ):
                return True
            if newest.last is None and self.following(newest) is not None:
                return True
        return any(
            (send := self.place(member)) is not None
            and send.error is None
            and (send.job is not None or not self.alive)
            and not self.own(member)
            for member in self.begin
        )

    def place(self, member: int) -> Send | None:
        """Return the submit command that started a member; None: the newest submission does not start the
        member.
        """
        if self.submission is not None:
            return self._places.get(member)
        members, tasks = self.plan.members, self._tasks
        if self.plan.sharing and not tasks:
            return Send(job=self.job, members=[*members], one_job=True)
        own = None if self.plan.array_indices is None else [*members]
        of_scheduler = [tasks[one] for one in members] if tasks else None
        return Send(job=self.job, count=self.plan.array_count, members=own, tasks=of_scheduler)

    def key(self, member: int, job: str | None) -> Key | None:
        """Return a job's id with the member's index in the job array, or with None if it has no index; None
        if `job` is None.
        """
        if job is None:
            return None
        send = self._of_job.get(job)
        if send is not None:
            if job not in self._indices:
                self._indices[job] = send.starts()
            return (job, self._indices[job].get(member))
        if self.scheduler is None or not self.scheduler.is_array(job, self.plan.array_count):
            return (job, None)
        if self.plan.sharing:  # a copy of the job has its index
            started = self.place(member)
            return (job, started.starts().get(member) if started else None)
        return (job, self._tasks.get(member, member))

    @cached_property
    def _tasks(self) -> dict[int, int]:
        """The array index that the scheduler gives each member, if it is not the member's number; empty if
        all share one job.
        """
        members, sharing = self.plan.members, self.plan.sharing
        if sharing:
            shared = {member: place // sharing.members for place, member in enumerate(members)}
            return shared if sharing.jobs(len(members)) > 1 else {}
        tasks = members if self.scheduler is None else self.scheduler.tasks(members)
        return {} if tasks is members else dict(zip(members, tasks, strict=True))

    def owns(self, info: JobInfo) -> bool:
        """Whether a job belongs to this run, and is not another cluster's job with the same id."""
        return self.submission is None or info.runs(str(self.run.script))

    def own(self, member: int) -> list[Attempt]:
        """Return a member's attempts that the newest submission has begun."""
        begin, send = self.begin.get(member), self.place(member)
        if begin is None or send is None:
            return []
        same = self.scheduler is None or self.scheduler.requeues_in_place  # then the id stays the same
        return [
            one
            for one in self.attempts.get(member, [])
            if one.number >= begin and (send.job is None or one.job in (None, send.job) or not same)
        ]


def _handed_on(run: RunDirectory) -> dict[tuple[str, int], str]:
    """Return the job that runs each member after a shared job that has left the member to a copy of itself.

    Raises:
        CastoffError: a record cannot be read.
    """
    handed = {}
    for name in names_in(attempts := run.path / "attempts"):
        if not name.startswith(_SHARED):
            continue
        folder, job = attempts / name, name.removeprefix(_SHARED).rpartition(".")[0]
        # There may be two copies: the one that has begun counts.
        copy = read(folder / "follower.json", Next) or read(folder / "next.json", Next)
        if copy is not None:
            for line in record_bytes(folder / "left").decode(errors="replace").splitlines():
                member = line.partition(" ")[0]
                if member.isdecimal():
                    handed[job, int(member)] = copy.job
    return handed
