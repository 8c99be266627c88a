"""The queue of PBS: one command queries the jobs of all runs, or as many jobs as fit on one command line.

One command queries the jobs of all runs, or as many jobs as fit.
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
"""The query, which reports each member of an array, with a line for each attribute. qstat's JSON would
contain only the first of several jobs (OpenPBS since 2023-12), and changes values (OpenPBS 23).
"""

_NO_HISTORY = "job history"
"""A part of the message that qstat and qselect print for -x if the server keeps no history
(`job_history_enable`); qstat then exits with 0.
"""


class PbsQueue(QueueByIds):
    """PBS's queue; keeps what this process has learned about the server."""

    title = TITLE
    cancel_command = ("qdel",)
    unknown = 153
    _keeps_history = True

    def query_ids(self, jobs: list[str]) -> tuple[subprocess.CompletedProcess[str], list[JobInfo], set[str]]:
        """See `QueueByIds.query_ids`."""
        done, reported = self._read_of_all([*_QSTAT, *jobs], partial(parse_queue, jobs={*jobs}))
        return done, reported if done.returncode >= 0 else [], parse_denied(done.stderr)

    def usage(self, jobs: Iterable[str]) -> list[JobUsage]:
        """Query usage by qstat, which reports jobs as long as the server remembers them."""
        wanted = sorted({*jobs})
        usages: list[JobUsage] = []
        for begin in range(0, len(wanted), MAX_QUERIED):
            batch = wanted[begin : begin + MAX_QUERIED]
            with contextlib.suppress(SchedulerUnreachable):
                usages += self._read_of_all([*_QSTAT, *batch], partial(parse_usage, jobs={*batch}))[1]
        return usages

    def search(self, script: str, name: str, since: float) -> list[JobInfo]:
        """Find a user's jobs by their name."""
        command = ["qselect", "-u", self.user_name, "-N", name]
        return self._selected(script, *self._read_of_all(command, parse_found))

    def of_user(self, script: str) -> list[JobInfo]:
        """List a user's jobs of any name, since qalter changes names."""
        return self._selected(script, *self.read(["qselect", "-u", self.user_name], parse_found))

    def is_of(self, info: JobInfo, run: RunDirectory) -> bool:
        """Whether a job was submitted from the parent of the run directory."""
        return info.folder == str(run.path.parent)

    def _selected(
        self, script: str, selected: subprocess.CompletedProcess[str], jobs: list[str]
    ) -> list[JobInfo]:
        """Return the jobs of a script among those whose ids qselect has printed.

        Raises:
            SchedulerUnreachable: qselect failed, or qstat did not report one of the jobs.
        """
        if selected.returncode:
            raise SchedulerUnreachable(failure_of(selected))
        infos: list[JobInfo] = []
        for begin in range(0, len(jobs), MAX_QUERIED):
            batch = jobs[begin : begin + MAX_QUERIED]
            reported, unanswered = self.query(batch)
            for job in sorted({*batch} - {info.job for info in reported}):
                left_out = f"qselect knows of job {job}, but qstat does not"
                raise SchedulerUnreachable(unanswered.get(job, left_out))
            infos += (info for info in reported if info.runs(script))
        return infos

    def _read_of_all(
        self, command: list[str], parse: Callable[[Page], Read]
    ) -> tuple[subprocess.CompletedProcess[str], Read]:
        """Read like `read`, including ended jobs if the server remembers them."""
        if self._keeps_history:
            done, parsed = self.read([command[0], "-x", *command[1:]], parse)
            if _NO_HISTORY not in done.stderr:
                return done, parsed
            self._keeps_history = False
        return self.read(command, parse)
