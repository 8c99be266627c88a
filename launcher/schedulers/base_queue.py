"""Queues: querying and cancelling jobs by a scheduler's commands; see `schedulers.registry`.

If a scheduler does not answer (`Answer.silence`), castoff concludes nothing about its jobs, least of all that
they ended.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.schedulers.command import (
    PATIENCE,
    Read,
    SchedulerUnreachable,
    answer_of,
    failure_of,
    parsed_answer,
    read_to_end,
    run_to_end,
)
from castoff.launcher.schedulers.job_info import JobInfo, JobUsage
from castoff.launcher.schedulers.page import Page

_MOST_CANCELLED = 250
"""The most jobs that one command cancels, so that the command ends well within `PATIENCE`."""

_NAME_PAUSE = 10.0
"""Seconds before a failed query for the cluster's name is repeated: many runs share the result."""

MAX_QUERIED = 1000
"""The most jobs in one query: argument lists are limited to 2 MiB, and long answers take long to read."""

Key = tuple[str, int | None]
"""A job's id and its index in an array."""


class Configuration(NamedTuple):
    """A scheduler's configuration, as far as castoff uses it; None: not reported."""

    cluster: str | None = None
    """The cluster's name, if job ids are unique only within the cluster."""
    largest_array: int | None = None
    """The most members that an array may have."""


class Answer(NamedTuple):
    """A queue's answer to a query about jobs."""

    jobs: Mapping[Key, JobInfo]
    silence: str | None = None
    """Why the scheduler did not answer; None: it answered."""
    lasting: bool = False
    """Whether it is useless to ask again from this host."""
    unanswered: Mapping[str, str] = {}
    """Queried jobs about which the answer says nothing, not even that they are unknown; each with the
    reason.
    """

    def joined(self, further: Answer) -> Answer:
        """Merge with a further answer, which takes precedence; if the further answer is a `silence`, return
        only that.
        """
        if further.silence:
            return further
        unanswered = {**self.unanswered, **further.unanswered}
        return Answer({**self.jobs, **further.jobs}, unanswered=unanswered)

    @property
    def left(self) -> dict[str, JobInfo]:
        """The jobs that are pending, running or in an unknown state, by id; for an array, one such member."""
        return {job.job: job for job in self.jobs.values() if job.is_active}

    def silence_on(self, jobs: Iterable[str | None]) -> str | None:
        """Return why there is no answer about one of these jobs; None: each of them has an answer."""
        return self.silence or next(
            (self.unanswered[job] for job in jobs if job and job in self.unanswered), None
        )


NOT_QUERIED = Answer({})
"""The answer to a query without any job."""


class Queue(ABC):
    """A scheduler's queue; keeps what this process has learned about the scheduler."""

    title: ClassVar[str]
    """The scheduler's name in messages."""
    cancel_command: ClassVar[Sequence[str]]
    """The command that cancels jobs, including whole arrays."""
    config_command: ClassVar[list[str]] = []
    """The command that prints the scheduler's configuration; empty: there is none."""
    cluster_is: ClassVar[str] = ""
    """The words before a cluster's name in a message."""
    lag: ClassVar[float] = 0.0
    """Seconds after a job's end during which the scheduler's history may be incomplete."""
    cancel_patience: ClassVar[float] = 60.0
    """Seconds within which a cancelled job should be gone; sites choose when KILL follows TERM."""

    def __init__(self, environ: Mapping[str, str] | None = None, patience: float = PATIENCE):
        """`environ`: for its commands (default: this process's). `patience`: seconds to wait for answers."""
        self.environ = os.environ if environ is None else environ
        self.patience = patience
        self.user = str(os.geteuid())
        self.user_name = user_name(self.user)
        self._cluster: str | None = None
        """This cluster's name, once it is known."""
        self._nameless = ""
        """Why the cluster's name is not known."""
        self._name_queried = -_NAME_PAUSE

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Run one of the scheduler's commands to its end.

        Raises:
            SchedulerUnreachable: it does not answer.
        """
        return run_to_end(command, self.patience, self.environ)

    def answer(self, command: list[str]) -> str:
        """Return the output of one of the scheduler's commands; raises as `run`, and if the command fails."""
        return answer_of(command, self.patience, self.environ)

    def read(
        self, command: list[str], parse: Callable[[Page], Read]
    ) -> tuple[subprocess.CompletedProcess[str], Read]:
        """Run one of the scheduler's commands; return the command's result and its parsed output. Raises as
        `run`.
        """
        return read_to_end(command, self.patience, self.environ, parse)

    def parsed(self, command: list[str], parse: Callable[[Page], Read]) -> Read:
        """Return the parsed output of one of the scheduler's commands; raises as `answer`."""
        return parsed_answer(command, self.patience, self.environ, parse)

    def configuration(self) -> Configuration:
        """Query the configuration; if the scheduler does not answer, return an empty one: the submit command
        will report why.
        """
        try:
            answer = self.answer(self.config_command) if self.config_command else ""
        except SchedulerUnreachable:
            return Configuration()
        return self.read_configuration(answer)

    @staticmethod
    def read_configuration(answer: str) -> Configuration:
        """Parse the output of `config_command`."""
        return Configuration()

    def elsewhere(self, clusters: Collection[str]) -> str | None:
        """Return why this cluster's scheduler cannot report jobs on `clusters`, given by name; None: it can.

        Job ids are unique only within a cluster, but two clusters may share their users' folders.
        """
        command = self.config_command
        if not clusters or not command:
            return None
        if self._cluster is None and time.monotonic() - self._name_queried >= _NAME_PAUSE:
            try:
                self._cluster = self.read_configuration(self.answer(command)).cluster
                self._nameless = f"{command[0]} does not report the cluster's name"
            except SchedulerUnreachable as error:
                self._nameless = str(error)
            self._name_queried = time.monotonic()
        if self._cluster is None:
            return self._nameless
        others = " and ".join(sorted({*clusters} - {self._cluster}))
        if not others:
            return None
        return f"its jobs are on {self.cluster_is}{others}, and this is {self._cluster}: ask there"

    def ask(self, jobs: Collection[str]) -> Answer:
        """Query jobs of this user by id; the answer may contain other jobs, too."""
        try:
            reported, unanswered = self.query(jobs)
        except SchedulerUnreachable as error:
            return Answer({}, str(error), error.lasting)
        reported_jobs = {(job_info.job, job_info.task): job_info for job_info in reported}
        return Answer(reported_jobs, unanswered=unanswered)

    @abstractmethod
    def query(self, jobs: Iterable[str]) -> tuple[list[JobInfo], dict[str, str]]:
        """Query jobs; return the reported jobs, and the jobs without an answer, each with the reason.

        Raises:
            SchedulerUnreachable: there is no answer about any job.
        """

    def history(self, jobs: Iterable[str]) -> dict[str, list[JobInfo]] | None:
        """Return the jobs' starts that accounting has recorded, by job id; None if it does not answer in
        time.
        """
        return {}

    def usage(self, jobs: Iterable[str]) -> list[JobUsage]:
        """Return what the jobs' starts used, according to accounting; empty if there is no accounting, or no
        answer.
        """
        return []

    def find(self, script: str, name: str, since: float) -> list[JobInfo] | None:
        """Return jobs of a script, including jobs that `ask` may leave out; None if the scheduler does not
        answer.

        `name`: the jobs' name. `since`: when the first of them was submitted.
        """
        try:
            return [info for info in self.search(script, name, since) if info.runs(script)]
        except SchedulerUnreachable:
            return None

    @abstractmethod
    def search(self, script: str, name: str, since: float) -> list[JobInfo]:
        """Find this user's jobs of a script, including ended jobs, by name or submission time; may return
        other jobs, too.

        Raises:
            SchedulerUnreachable: a necessary command does not answer.
        """

    def unfinished(self, script: str) -> list[JobInfo]:
        """Return all jobs of a script that may still wait or run, even if their ids were never recorded.

        Raises:
            SchedulerUnreachable: the scheduler does not answer.
        """
        return [info for info in self.of_user(script) if info.is_active and info.runs(script)]

    @abstractmethod
    def of_user(self, script: str) -> list[JobInfo]:
        """Return this user's jobs of a script, and possibly other jobs; raises as `unfinished`."""

    def cancel(self, jobs: Sequence[str]) -> dict[str, str]:
        """Cancel jobs, including whole arrays, in the given order and with as few commands as possible.

        Return the jobs that the scheduler does not cancel, each with its message.
        """
        refused: dict[str, str] = {}
        for begin in range(0, len(jobs), _MOST_CANCELLED):
            batch = jobs[begin : begin + _MOST_CANCELLED]
            try:
                done = self.run([*self.cancel_command, *batch])
            except SchedulerUnreachable as error:
                refused |= dict.fromkeys(batch, str(error))
            else:
                refused |= _refusals(batch, done) if done.returncode else {}
        return refused

    @abstractmethod
    def is_of(self, info: JobInfo, run: RunDirectory) -> bool:
        """Whether a pending or running job is certainly the job of a given script that was submitted without
        castoff.
        """


class QueueByIds(Queue):
    """A queue that is queried by job ids, several at a time."""

    unknown: ClassVar[int] = 0
    """The exit code of a query if the scheduler does not know the last job without an answer."""

    def query(self, jobs: Iterable[str]) -> tuple[list[JobInfo], dict[str, str]]:
        """See `Queue.query`."""
        infos: list[JobInfo] = []
        unanswered: dict[str, str] = {}
        wanted = sorted({*jobs}, key=lambda job: (len(job), job))
        for begin in range(0, len(wanted), MAX_QUERIED):
            batch = wanted[begin : begin + MAX_QUERIED]
            done, reported, denied = self.query_ids(batch)
            missing = {*batch} - {info.job for info in reported} - denied
            failed = failure_of(done) if done.returncode not in (0, self.unknown) else None
            left_out = f"{Path(done.args[0]).name}'s answer leaves out job"
            silence = {job: failed or f"{left_out} {job}" for job in batch if job in missing}
            if len(silence) == len(batch):
                raise SchedulerUnreachable(silence[batch[0]])
            infos += reported
            unanswered |= silence
        return infos, unanswered

    @abstractmethod
    def query_ids(self, jobs: list[str]) -> tuple[subprocess.CompletedProcess[str], list[JobInfo], set[str]]:
        """Query jobs by one command; return the command's result, the reported jobs, and the ids reported as
        unknown.

        Raises:
            SchedulerUnreachable: it does not answer.
        """


def _refusals(jobs: Sequence[str], done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Return a failed command's messages by job: for the jobs that the messages name, or for all jobs if they
    name none.
    """
    named = {}
    for job in jobs:
        word = re.compile(rf"(?<![\w.]){re.escape(job)}(?!\w)")
        if lines := [line for line in done.stderr.splitlines() if word.search(line)]:
            about = subprocess.CompletedProcess(done.args, done.returncode, "", "\n".join(lines))
            named[job] = failure_of(about)
    return named or dict.fromkeys(jobs, failure_of(done))


def user_name(user: str) -> str:
    """Return the name of the user with an id; the id itself if it has no name."""
    try:
        return pwd.getpwuid(int(user)).pw_name
    except (KeyError, ValueError):
        return user
