"""Asks PBS about jobs, and ends them: the only module that runs qstat, qselect and qdel for runs.

One qstat answers for all runs, in one call for as many jobs as fit.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterable

from launcher.runs.run import RunDirectory
from launcher.schedulers.base_queue import MAX_QUERIED, QueueByIds
from launcher.schedulers.command import SchedulerUnreachable, failure_of
from launcher.schedulers.job_info import JobInfo, JobUsage
from launcher.schedulers.pbs import TITLE
from launcher.schedulers.pbs.accounting import parse_usage
from launcher.schedulers.pbs.jobs import parse_denied, parse_found, parse_queue

_QSTAT = ("qstat", "-t", "-f", "-w")
"""Reports each member of arrays, in lines, one for each attribute: of several jobs, JSON has the first
alone (OpenPBS since 2023-12), and changes values (OpenPBS 23)."""

_NO_HISTORY = "job history"
"""qstat and qselect say so of -x where the server keeps none (`job_history_enable`); qstat exits with 0."""


class PbsQueue(QueueByIds):
    """PBS, as far as one process has asked it."""

    title = TITLE
    cancel_command = ("qdel",)
    unknown = 153
    _keeps_history = True

    def query_ids(self, jobs: list[str]) -> tuple[subprocess.CompletedProcess[str], list[JobInfo], set[str]]:
        """What qstat reports."""
        done = self._run_for_all([*_QSTAT, *jobs])
        return done, parse_queue(done.stdout) if done.returncode >= 0 else [], parse_denied(done.stderr)

    def usage(self, jobs: Iterable[str]) -> list[JobUsage]:
        """By qstat, as long as the server remembers them."""
        wanted = sorted({*jobs})
        found: list[JobUsage] = []
        for begin in range(0, len(wanted), MAX_QUERIED):
            with contextlib.suppress(SchedulerUnreachable):
                found += parse_usage(
                    self._run_for_all([*_QSTAT, *wanted[begin : begin + MAX_QUERIED]]).stdout
                )
        return found

    def search(self, name: str, since: float) -> list[JobInfo]:
        """Those of a name."""
        return self._selected(self._run_for_all(["qselect", "-u", self.user_name, "-N", name]))

    def of_user(self) -> list[JobInfo]:
        """What qselect finds by any name: qalter changes names."""
        return self._selected(self.run(["qselect", "-u", self.user_name]))

    def is_of(self, info: JobInfo, run: RunDirectory) -> bool:
        """Whether a job was submitted where a run directory lies, which is named by its id."""
        return info.folder == str(run.path.parent)

    def _selected(self, found: subprocess.CompletedProcess[str]) -> list[JobInfo]:
        """The jobs whose ids qselect has printed.

        Raises:
            SchedulerUnreachable: it failed, or qstat did not report one of them.
        """
        if found.returncode:
            raise SchedulerUnreachable(failure_of(found))
        jobs = parse_found(found.stdout)
        reported, unanswered = self.query(jobs)
        for job in sorted({*jobs} - {one.job for one in reported}):
            raise SchedulerUnreachable(unanswered.get(job, f"qselect knows of job {job}, but qstat does not"))
        return reported

    def _run_for_all(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        """What a command comes to, asked for jobs that have ended where the server remembers them.

        Raises:
            SchedulerUnreachable: it does not answer.
        """
        if self._keeps_history:
            done = self.run([command[0], "-x", *command[1:]])
            if _NO_HISTORY not in done.stderr:
                return done
            self._keeps_history = False
        return self.run(command)
