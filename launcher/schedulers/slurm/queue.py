"""Queries and cancels jobs of Slurm: the only module that runs squeue, sacct and scancel for runs.

One squeue command covers all runs; sacct, and scontrol for the cluster's name, run at most once in addition.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import ClassVar

from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.schedulers.base_queue import Configuration, Queue, user_name
from castoff.launcher.schedulers.command import Read, SchedulerUnreachable, parsed_answer
from castoff.launcher.schedulers.job_info import JobInfo, JobUsage, runs_script, whole
from castoff.launcher.schedulers.page import Page, Wanted
from castoff.launcher.schedulers.slurm import TITLE
from castoff.launcher.schedulers.slurm.accounting import parse_usage, usage_command
from castoff.launcher.schedulers.slurm.jobs import (
    MAX_QUERIED,
    history_command,
    parse_history,
    parse_queue,
    queue_command,
)

_HISTORY_PATIENCE = 8.0
"""Seconds to wait for sacct, without which castoff also works."""

_HISTORY_PAUSE = 60.0
"""Seconds before sacct is queried again after a failure."""

_CLOCKS = 3600.0
"""Seconds by which the clocks of this host and of accounting may differ."""

_OF_RUNS = "/job.sh"
"""The end of the path of every run's script."""


class SlurmQueue(Queue):
    """Slurm's queue; keeps what this process has learned about the cluster."""

    title = TITLE
    cancel_command = ("scancel",)
    config_command: ClassVar[list[str]] = ["scontrol", "show", "config"]
    lag = 15.0  # the controller reports to accounting every few seconds
    cancel_patience = 120.0  # KillWait, which is 30 s unless a site sets another
    _history_rests = 0.0

    @staticmethod
    def read_configuration(answer: str) -> Configuration:
        """Parse scontrol's answer; for values that are missing, the site's profile sets the limits."""
        name = re.search(r"^ClusterName *= *(\S+)", answer, re.MULTILINE)
        texts = re.findall(r"^MaxArraySize *= *(\d+)", answer, re.MULTILINE)
        texts += re.findall(r"\bmax_array_tasks=(\d+)", answer)
        limits = [number for text in texts if (number := whole(text)) is not None]
        return Configuration(name[1] if name else None, min(limits, default=None))

    def query(self, jobs: Iterable[str]) -> tuple[list[JobInfo], dict[str, str]]:
        """Query squeue for these jobs, and for all other jobs that may belong to this user's runs."""
        wanted = {*jobs}
        return self._queued(lambda job, script: job in wanted or _OF_RUNS in script), {}

    def history(self, jobs: Iterable[str]) -> dict[str, list[JobInfo]] | None:
        """Query sacct for the jobs' starts, by id; None if it does not answer in time."""
        wanted = sorted({*jobs}, key=lambda job: (len(job), job))[-MAX_QUERIED:]
        reported = self._accounted(history_command(wanted), partial(parse_history, wanted=_one_of(wanted)))
        if reported is None:
            return None
        starts: dict[str, list[JobInfo]] = {}
        for info in reported:
            by = info.cancelled_by and user_name(info.cancelled_by)
            starts.setdefault(info.job, []).append(info._replace(cancelled_by=by))
        return starts

    def search(self, script: str, name: str, since: float) -> list[JobInfo]:
        """Query sacct for jobs since a time; none if sacct does not answer."""
        command = history_command(user=self.user, since=since - _CLOCKS)
        return self._accounted(command, partial(parse_history, wanted=_of_script(script))) or []

    def usage(self, jobs: Iterable[str]) -> list[JobUsage]:
        """Query sacct for what jobs used."""
        wanted = sorted({*jobs})[-MAX_QUERIED:]
        parse = partial(parse_usage, wanted=_one_of(wanted))
        return self._accounted(usage_command(wanted), parse) or []

    def of_user(self, script: str) -> list[JobInfo]:
        """Query squeue for the jobs of a script."""
        return self._queued(_of_script(script))

    def _queued(self, wanted: Wanted) -> list[JobInfo]:
        """Return the jobs in squeue's answer; raises as `answer`."""
        return self.parsed(queue_command(self.user), partial(parse_queue, wanted=wanted))

    def _accounted(self, command: list[str], parse: Callable[[Page], Read]) -> Read | None:
        """Return sacct's parsed answer; None if sacct does not answer in time."""
        if time.monotonic() < self._history_rests:
            return None
        try:
            return parsed_answer(command, min(_HISTORY_PATIENCE, self.patience), self.environ, parse)
        except SchedulerUnreachable:
            self._history_rests = time.monotonic() + _HISTORY_PAUSE
            return None

    def is_of(self, info: JobInfo, run: RunDirectory) -> bool:
        """Whether a job has the script of a run: a job of another cluster may have the same id."""
        try:
            script = self.answer(["scontrol", "write", "batch_script", info.job, "-"])
            return script.encode("utf-8", "surrogateescape") == run.script.read_bytes()
        except (SchedulerUnreachable, OSError):
            return False


def _one_of(jobs: Iterable[str]) -> Wanted:
    wanted = {*jobs}
    return lambda job, _: job in wanted


def _of_script(script: str) -> Wanted:
    return lambda _, submitted: runs_script(submitted, script)
