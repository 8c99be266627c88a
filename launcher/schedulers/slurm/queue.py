"""Asks Slurm about jobs, and ends them: the only module that runs squeue, sacct and scancel for runs.

One squeue answers for all runs; sacct, and scontrol for the cluster's name, are asked at most once beside it.
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
"""Seconds for sacct, without which everything works."""

_HISTORY_PAUSE = 60.0
"""Seconds until an sacct that failed is asked again."""

_CLOCKS = 3600.0
"""Seconds that the clocks here and at the accounting may differ."""

_OF_RUNS = "/job.sh"
"""What the scripts of all runs are called."""


class SlurmQueue(Queue):
    """Slurm, as far as one process has asked it."""

    title = TITLE
    cancel_command = ("scancel",)
    config_command: ClassVar[list[str]] = ["scontrol", "show", "config"]
    queries_by_id = False
    lag = 15.0  # the controller tells accounting every few seconds
    cancel_patience = 120.0  # an administrator chooses it: KillWait is 30 s unless a site says otherwise
    _history_rests = 0.0

    @staticmethod
    def read_configuration(answer: str) -> Configuration:
        """By scontrol; without an answer a site's profile decides on limits."""
        name = re.search(r"^ClusterName *= *(\S+)", answer, re.MULTILINE)
        found = re.findall(r"^MaxArraySize *= *(\d+)", answer, re.MULTILINE)
        found += re.findall(r"\bmax_array_tasks=(\d+)", answer)
        limits = [number for text in found if (number := whole(text)) is not None]
        return Configuration(name[1] if name else None, min(limits, default=None))

    def query(self, jobs: Iterable[str]) -> tuple[list[JobInfo], dict[str, str]]:
        """What squeue tells of these, and of all that may be jobs of this user's runs."""
        asked = {*jobs}
        return self._queued(lambda job, script: job in asked or _OF_RUNS in script), {}

    def history(self, jobs: Iterable[str]) -> dict[str, list[JobInfo]] | None:
        """What accounting knows of the starts of jobs, by id; None where it does not answer in time."""
        wanted = sorted({*jobs}, key=lambda job: (len(job), job))[-MAX_QUERIED:]
        reported = self._accounted(history_command(wanted), partial(parse_history, wanted=_one_of(wanted)))
        if reported is None:
            return None
        found: dict[str, list[JobInfo]] = {}
        for one in reported:
            by = one.cancelled_by and user_name(one.cancelled_by)
            found.setdefault(one.job, []).append(one._replace(cancelled_by=by))
        return found

    def search(self, script: str, name: str, since: float) -> list[JobInfo]:
        """Those since a time that accounting knows; none where it does not answer."""
        command = history_command(user=self.user, since=since - _CLOCKS)
        return self._accounted(command, partial(parse_history, wanted=_of_script(script))) or []

    def usage(self, jobs: Iterable[str]) -> list[JobUsage]:
        """By sacct."""
        wanted = sorted({*jobs})[-MAX_QUERIED:]
        parse = partial(parse_usage, wanted=_one_of(wanted))
        return self._accounted(usage_command(wanted), parse) or []

    def of_user(self, script: str) -> list[JobInfo]:
        """What squeue tells of."""
        return self._queued(_of_script(script))

    def _queued(self, wanted: Wanted) -> list[JobInfo]:
        """The jobs in squeue's answer; raises as `answer`."""
        return self.parsed(queue_command(self.user), partial(parse_queue, wanted=wanted))

    def _accounted(self, command: list[str], parse: Callable[[Page], Read]) -> Read | None:
        """What is in sacct's answer; None where there is none in time."""
        if time.monotonic() < self._history_rests:
            return None
        try:
            return parsed_answer(command, min(_HISTORY_PATIENCE, self.patience), self.environ, parse)
        except SchedulerUnreachable:
            self._history_rests = time.monotonic() + _HISTORY_PAUSE
            return None

    def is_of(self, info: JobInfo, run: RunDirectory) -> bool:
        """Whether a job has the script of a run: another cluster's may have the same id."""
        try:
            script = self.answer(["scontrol", "write", "batch_script", info.job, "-"])
            return script.encode("utf-8", "surrogateescape") == run.script.read_bytes()
        except (SchedulerUnreachable, OSError):
            return False


def _one_of(jobs: Iterable[str]) -> Wanted:
    asked = {*jobs}
    return lambda job, _: job in asked


def _of_script(script: str) -> Wanted:
    return lambda _, submitted: runs_script(submitted, script)
