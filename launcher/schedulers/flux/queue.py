"""Queries and cancels jobs of Flux: the only module that runs `flux jobs` for runs.

One command queries the jobs of all runs, or as many jobs as fit.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.schedulers.base_queue import Configuration, QueueByIds
from castoff.launcher.schedulers.flux import TITLE
from castoff.launcher.schedulers.flux.jobs import f58, parse_denied, parse_queue
from castoff.launcher.schedulers.job_info import JobInfo, runs_script

_JOBS = ("flux", "jobs", "--json")


class FluxQueue(QueueByIds):
    """Flux's queue; keeps what this process has learned about the instance."""

    title = TITLE
    cancel_command = ("flux", "cancel")
    config_command: ClassVar[list[str]] = ["flux", "getattr", "jobid-path"]
    cluster_is = "the Flux instance "

    @staticmethod
    def read_configuration(answer: str) -> Configuration:
        """Read the path of this Flux instance, which consists of the enclosing jobs' ids: `/` is the
        machine's own instance.
        """
        return Configuration(answer.strip() or None)

    def query_ids(self, jobs: list[str]) -> tuple[subprocess.CompletedProcess[str], list[JobInfo], set[str]]:
        """See `QueueByIds.query_ids`."""
        wanted = {*jobs}
        done, reported = self.read([*_JOBS, *jobs], partial(parse_queue, wanted=lambda job, _: job in wanted))
        return done, reported, parse_denied(done.stderr)

    def search(self, script: str, name: str, since: float) -> list[JobInfo]:
        """Find a user's jobs by their name."""
        return self._listed(script, "-a", f"--name={name}")

    def of_user(self, script: str) -> list[JobInfo]:
        """List a user's jobs of any name."""
        return self._listed(script)

    def _listed(self, script: str, *options: str) -> list[JobInfo]:
        """Return the jobs of a script; raises as `answer`."""
        parse = partial(parse_queue, wanted=lambda _, submitted: runs_script(submitted, script))
        return self.parsed([*_JOBS, "--count=0", *options], parse)

    def cancel(self, jobs: Sequence[str]) -> dict[str, str]:
        """Cancel jobs, whose ids are written as in Flux's refusals."""
        by_f58 = {f58(job): job for job in jobs}
        return {by_f58[job]: reason for job, reason in super().cancel(list(by_f58)).items()}

    def is_of(self, info: JobInfo, run: RunDirectory) -> bool:
        """Whether a job's folder is the run directory, whose name contains the job's id, or the run
        directory's parent.
        """
        return info.folder in (str(run.path.parent), str(run.path))
