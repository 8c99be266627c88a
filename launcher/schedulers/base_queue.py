"""What a scheduler is asked about runs, and how its commands are run; see `schedulers.registry`.

A scheduler that does not answer has said nothing: that is a `silence`, not an ending.
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
"""Jobs that one command is to end: so many are ended well within `PATIENCE`."""

_NAME_PAUSE = 10.0
"""Seconds until it is asked again how this cluster is called: one failure counts for many runs."""

MAX_QUERIED = 1000
"""Jobs in one question: an argument list can be no longer than 2 MiB, and an answer should be read."""

Key = tuple[str, int | None]
"""A job's id and its index in an array."""


class Configuration(NamedTuple):
    """What a scheduler says of itself; None where it does not."""

    cluster: str | None = None
    """Its name, where ids are its own alone."""
    largest_array: int | None = None
    """How many members an array may have."""


class Answer(NamedTuple):
    """What a queue said."""

    jobs: Mapping[Key, JobInfo]
    ids: frozenset[str]
    """All jobs in it, whichever of an array's."""
    silence: str | None = None
    """Why it said nothing."""
    lasting: bool = False
    """Whether asking again from here is useless."""
    unanswered: Mapping[str, str] = {}
    """Jobs that it was asked about and said nothing of, not even that it does not know them; and why."""

    def joined(self, further: Answer) -> Answer:
        """Both; the further one counts where it has anything to say, also that it has not."""
        if further.silence:
            return further
        unanswered = {**self.unanswered, **further.unanswered}
        return Answer({**self.jobs, **further.jobs}, self.ids | further.ids, unanswered=unanswered)

    @property
    def left(self) -> dict[str, JobInfo]:
        """The jobs that wait or run, or may, whichever of an array's; by id."""
        return {job.job: job for job in self.jobs.values() if job.is_active}

    def silence_on(self, jobs: Iterable[str | None]) -> str | None:
        """Why it said nothing of one of these jobs; None where it did of each."""
        return self.silence or next(
            (self.unanswered[job] for job in jobs if job and job in self.unanswered), None
        )


NOT_QUERIED = Answer({}, frozenset())
"""Where nothing had to be asked."""


class Queue(ABC):
    """A scheduler, as far as one process has asked it."""

    title: ClassVar[str]
    """How people call the scheduler."""
    cancel_command: ClassVar[Sequence[str]]
    """The command that ends jobs, whole arrays too."""
    config_command: ClassVar[list[str]] = []
    """The command that prints its configuration; empty: there is none."""
    cluster_is: ClassVar[str] = ""
    """What precedes a cluster's name in a message."""
    queries_by_id: ClassVar[bool] = True
    """Whether `ask` returns only the jobs that it is asked about."""
    lag: ClassVar[float] = 0.0
    """Seconds after an end in which its history may not yet know all of it."""
    cancel_patience: ClassVar[float] = 60.0
    """Seconds that a job may take to be gone once it is cancelled; sites choose when KILL follows TERM."""

    def __init__(self, environ: Mapping[str, str] | None = None, patience: float = PATIENCE):
        """`environ`: that of its commands (default: this process's); `patience`: seconds for an answer."""
        self.environ = os.environ if environ is None else environ
        self.patience = patience
        self.user = str(os.geteuid())
        self.user_name = user_name(self.user)
        self._cluster: str | None = None
        """How this cluster is called."""
        self._nameless = ""
        """Why that is not known."""
        self._name_queried = -_NAME_PAUSE

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """What one of its commands comes to.

        Raises:
            SchedulerUnreachable: it does not answer.
        """
        return run_to_end(command, self.patience, self.environ)

    def answer(self, command: list[str]) -> str:
        """What one of its commands prints; raises as `run`, and where it fails."""
        return answer_of(command, self.patience, self.environ)

    def read(
        self, command: list[str], parse: Callable[[Page], Read]
    ) -> tuple[subprocess.CompletedProcess[str], Read]:
        """What one of its commands comes to, and what `parse` makes of its output; raises as `run`."""
        return read_to_end(command, self.patience, self.environ, parse)

    def parsed(self, command: list[str], parse: Callable[[Page], Read]) -> Read:
        """What `parse` makes of what one of its commands prints; raises as `answer`."""
        return parsed_answer(command, self.patience, self.environ, parse)

    def configuration(self) -> Configuration:
        """What it says of itself here; nothing where it does not answer: its submit command will say why."""
        try:
            answer = self.answer(self.config_command) if self.config_command else ""
        except SchedulerUnreachable:
            return Configuration()
        return self.read_configuration(answer)

    @staticmethod
    def read_configuration(answer: str) -> Configuration:
        """What `config_command` answers."""
        return Configuration()

    def elsewhere(self, clusters: Collection[str]) -> str | None:
        """Why it cannot report jobs on these clusters, by their names; None: it can.

        Each has ids of its own, and two may share their users' folders.
        """
        asks = self.config_command
        if not clusters or not asks:
            return None
        if self._cluster is None and time.monotonic() - self._name_queried >= _NAME_PAUSE:
            try:
                self._cluster = self.read_configuration(self.answer(asks)).cluster
                self._nameless = f"{asks[0]} does not report the cluster's name"
            except SchedulerUnreachable as silence:
                self._nameless = str(silence)
            self._name_queried = time.monotonic()
        if self._cluster is None:
            return self._nameless
        others = " and ".join(sorted({*clusters} - {self._cluster}))
        if not others:
            return None
        return f"its jobs are on {self.cluster_is}{others}, and this is {self._cluster}: ask there"

    def ask(self, jobs: Collection[str]) -> Answer:
        """Ask about jobs of this user, by id; the answer may hold others, too."""
        try:
            reported, unanswered = self.query(jobs)
        except SchedulerUnreachable as why:
            return Answer({}, frozenset(), str(why), why.lasting)
        found = {(one.job, one.task): one for one in reported}
        return Answer(found, frozenset(job for job, _ in found), unanswered=unanswered)

    @abstractmethod
    def query(self, jobs: Iterable[str]) -> tuple[list[JobInfo], dict[str, str]]:
        """What it reports about jobs, and those that it does not answer about, each with the reason.

        Raises:
            SchedulerUnreachable: it has answered for none.
        """

    def history(self, jobs: Iterable[str]) -> dict[str, list[JobInfo]] | None:
        """What is known of the starts of jobs beyond `ask`, by id; None where nothing answers in time."""
        return {}

    def usage(self, jobs: Iterable[str]) -> list[JobUsage]:
        """What accounting knows of the starts of jobs; nothing where it does not answer, or there is none."""
        return []

    def find(self, script: str, name: str, since: float) -> list[JobInfo] | None:
        """The jobs of a script that `ask` may leave out; None where the scheduler does not answer.

        `name`: the jobs'. `since`: when the first of them was sent.
        """
        try:
            return [one for one in self.search(script, name, since) if one.runs(script)]
        except SchedulerUnreachable:
            return None

    @abstractmethod
    def search(self, script: str, name: str, since: float) -> list[JobInfo]:
        """This user's jobs of a script, of a name or since a time, with those that have ended; maybe others.

        Raises:
            SchedulerUnreachable: nothing answers that has to.
        """

    def unfinished(self, script: str) -> list[JobInfo]:
        """All jobs of a script that wait or run, or may, whatever ids anybody remembers.

        Raises:
            SchedulerUnreachable: nothing answers.
        """
        return [one for one in self.of_user(script) if one.is_active and one.runs(script)]

    @abstractmethod
    def of_user(self, script: str) -> list[JobInfo]:
        """This user's jobs of a script, and maybe others; raises as `unfinished`."""

    def cancel(self, jobs: Sequence[str]) -> dict[str, str]:
        """Have jobs ended in this order, whole arrays too: by one command for as many as fit.

        Those that the scheduler does not end, each with its words.
        """
        refused: dict[str, str] = {}
        for begin in range(0, len(jobs), _MOST_CANCELLED):
            some = jobs[begin : begin + _MOST_CANCELLED]
            try:
                done = self.run([*self.cancel_command, *some])
            except SchedulerUnreachable as why:
                refused |= dict.fromkeys(some, str(why))
            else:
                refused |= _refusals(some, done) if done.returncode else {}
        return refused

    @abstractmethod
    def is_of(self, info: JobInfo, run: RunDirectory) -> bool:
        """Whether a job that waits or runs is certainly that of a script that stood alone."""


class QueueByIds(Queue):
    """One that is asked about a number of jobs at a time, each by its id."""

    unknown: ClassVar[int] = 0
    """The exit code of a question whose last job without an answer is none that it knows."""

    def query(self, jobs: Iterable[str]) -> tuple[list[JobInfo], dict[str, str]]:
        """See `Queue.query`."""
        found: list[JobInfo] = []
        unanswered: dict[str, str] = {}
        wanted = sorted({*jobs}, key=lambda job: (len(job), job))
        for begin in range(0, len(wanted), MAX_QUERIED):
            some = wanted[begin : begin + MAX_QUERIED]
            done, reported, denied = self.query_ids(some)
            missing = {*some} - {one.job for one in reported} - denied
            failed = failure_of(done) if done.returncode not in (0, self.unknown) else None
            left_out = f"{Path(done.args[0]).name}'s answer leaves out job"
            silence = {job: failed or f"{left_out} {job}" for job in some if job in missing}
            if len(silence) == len(some):
                raise SchedulerUnreachable(silence[some[0]])
            found += reported
            unanswered |= silence
        return found, unanswered

    @abstractmethod
    def query_ids(self, jobs: list[str]) -> tuple[subprocess.CompletedProcess[str], list[JobInfo], set[str]]:
        """The result of a command that asks about so many jobs: those it reports, and those it does not know.

        Raises:
            SchedulerUnreachable: it does not answer.
        """


def _refusals(jobs: Sequence[str], done: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """What a command that failed has to say of jobs: of each that it names; of all if it names none."""
    named = {}
    for job in jobs:
        word = re.compile(rf"(?<![\w.]){re.escape(job)}(?!\w)")
        if lines := [line for line in done.stderr.splitlines() if word.search(line)]:
            about = subprocess.CompletedProcess(done.args, done.returncode, "", "\n".join(lines))
            named[job] = failure_of(about)
    return named or dict.fromkeys(jobs, failure_of(done))


def user_name(user: str) -> str:
    """The name of a user's id; the id itself where nobody has it."""
    try:
        return pwd.getpwuid(int(user)).pw_name
    except (KeyError, ValueError):
        return user
