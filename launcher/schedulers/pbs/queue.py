"""Asks PBS about jobs, and ends them: the only module that runs qstat, qselect and qdel for runs.

One qstat answers for all runs, in one call for as many jobs as fit.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterable
from functools import partial

from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.schedulers.base_queue import MAX_QUERIED, QueueByIds
from castoff.launcher.schedulers.command import Read, SchedulerUnreachable, failure_of
from castoff.launcher.schedulers.job_info import JobInfo, JobUsage
from castoff.launcher.schedulers.page import Page
from castoff.launcher.schedulers.pbs import TITLE
from castoff.launcher.schedulers.pbs.accounting import parse_usage
from castoff.launcher.schedulers.pbs.jobs import parse_denied, parse_found, parse_queue

_QSTAT = ("qstat", "-t", "-f", "-w")
"""Reports each member of arrays, in lines, one for each attribute: of several jobs, JSON has the first
alone (OpenPBS since 2023-12), and changes values (OpenPBS 23)."""

_NO_HISTORY = "job history"
"""qstat and qselect say so of -x where the server keeps none (`job_history_enable`); qstat exits with 0."""


class PbsQueue(QueueByIds):
    """The PBS queue, and what this process has learned about it."""

    title = TITLE
    cancel_command = ("qdel",)
    unknown = 153
    _keeps_history = True

    def query_ids(self, jobs: list[str]) -> tuple[subprocess.CompletedProcess[str], list[JobInfo], set[str]]:
        """What qstat reports."""
        done, reported = self._read_of_all([*_QSTAT, *jobs], partial(parse_queue, jobs={*jobs}))
        return done, reported if done.returncode >= 0 else [], parse_denied(done.stderr)

    def usage(self, jobs: Iterable[str]) -> list[JobUsage]:
        """By qstat, as long as the server remembers them."""
        wanted = sorted({*jobs})
        found: list[JobUsage] = []
        for begin in range(0, len(wanted), MAX_QUERIED):
            some = wanted[begin : begin + MAX_QUERIED]
            with contextlib.suppress(SchedulerUnreachable):
                found += self._read_of_all([*_QSTAT, *some], partial(parse_usage, jobs={*some}))[1]
        return found

    def search(self, script: str, name: str, since: float) -> list[JobInfo]:
        """Those of a name."""
        command = ["qselect", "-u", self.user_name, "-N", name]
        return self._selected(script, *self._read_of_all(command, parse_found))

    def of_user(self, script: str) -> list[JobInfo]:
        """What qselect finds by any name: qalter changes names."""
        return self._selected(script, *self.read(["qselect", "-u", self.user_name], parse_found))

    def is_of(self, info: JobInfo, run: RunDirectory) -> bool:
        """Whether a job was submitted where a run directory lies, which is named by its id."""
        return info.folder == str(run.path.parent)

    def _selected(
        self, script: str, selected: subprocess.CompletedProcess[str], jobs: list[str]
    ) -> list[JobInfo]:
        """The jobs of a script among those whose ids qselect has printed.

        Raises:
            SchedulerUnreachable: it failed, or qstat did not report one of them.
        """
        if selected.returncode:
            raise SchedulerUnreachable(failure_of(selected))
        found: list[JobInfo] = []
        for begin in range(0, len(jobs), MAX_QUERIED):
            some = jobs[begin : begin + MAX_QUERIED]
            reported, unanswered = self.query(some)
            for job in sorted({*some} - {one.job for one in reported}):
                left_out = f"qselect knows of job {job}, but qstat does not"
                raise SchedulerUnreachable(unanswered.get(job, left_out))
            found += (one for one in reported if one.runs(script))
        return found

    def _read_of_all(
        self, command: list[str], parse: Callable[[Page], Read]
    ) -> tuple[subprocess.CompletedProcess[str], Read]:
        """The same as `read`, asked for jobs that have ended, too, where the server remembers them."""
        if self._keeps_history:
            done, found = self.read([command[0], "-x", *command[1:]], parse)
            if _NO_HISTORY not in done.stderr:
                return done, found
            self._keeps_history = False
        return self.read(command, parse)
