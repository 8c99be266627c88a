"""Asks LSF about jobs: the only module that runs bjobs for runs."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.schedulers.base_queue import Configuration, QueueByIds
from castoff.launcher.schedulers.command import SchedulerUnreachable, failure_of
from castoff.launcher.schedulers.job_info import JobInfo, runs_script
from castoff.launcher.schedulers.lsf import TITLE
from castoff.launcher.schedulers.lsf.jobs import QUERY, parse_denied, parse_queue


class LsfQueue(QueueByIds):
    """LSF, as far as one process has asked it."""

    title = TITLE
    cancel_command = ("bkill",)
    config_command: ClassVar[list[str]] = ["lsid"]
    cluster_is = "the LSF cluster "

    @staticmethod
    def read_configuration(answer: str) -> Configuration:
        """Which cluster this is."""
        found = re.search(r"^My cluster name is (\S+)$", answer, re.MULTILINE)
        return Configuration(found[1] if found else None)

    def query_ids(self, jobs: list[str]) -> tuple[subprocess.CompletedProcess[str], list[JobInfo], set[str]]:
        """What bjobs reports; it keeps jobs for an hour after their end, unless a site says otherwise."""
        asked = {*jobs}
        done, reported = self.read([*QUERY, *jobs], partial(parse_queue, wanted=lambda job, _: job in asked))
        return done, reported, parse_denied(done.stderr)

    def search(self, script: str, name: str, since: float) -> list[JobInfo]:
        """Those of this user, with those that have ended; raises where bjobs fails, not where it has none."""
        parse = partial(parse_queue, wanted=lambda _, command: runs_script(command, script))
        done, reported = self.read(QUERY, parse)
        if done.returncode and not re.search(r"^No .*job found", done.stderr, re.MULTILINE):
            raise SchedulerUnreachable(failure_of(done))
        return reported

    def of_user(self, script: str) -> list[JobInfo]:
        """See `search`."""
        return self.search(script, "", 0.0)

    def cancel(self, jobs: Sequence[str]) -> dict[str, str]:
        """Have jobs ended; castoff calls `37_3` what is `37[3]` to bkill.

        Of an array it says that it is about to end it, and fails.
        """
        theirs = {re.sub(r"_(\d+)$", r"[\1]", job): job for job in jobs}
        refused = super().cancel(list(theirs)).items()
        return {theirs[job]: why for job, why in refused if "Operation is in progress" not in why}

    def is_of(self, info: JobInfo, run: RunDirectory) -> bool:
        """Whether a job was submitted where a run directory lies, which is named by its id."""
        return info.folder == str(run.path.parent)
