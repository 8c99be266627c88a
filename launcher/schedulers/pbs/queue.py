"""Asks PBS about jobs, and ends them: the only module that runs qstat, qselect and qdel for runs.

One qstat answers for all runs, in one call for as many jobs as fit.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Collection, Mapping
from functools import partial

from launcher.runs.run import Run
from launcher.schedulers.command import PATIENCE, Silent, failure_of, run_to_end
from launcher.schedulers.jobs import JobTold
from launcher.schedulers.pbs.jobs import (
    find_command,
    parse_denied,
    parse_found,
    parse_queue,
    queue_command,
)
from launcher.schedulers.pbs.scheduler import SCHEDULER
from launcher.schedulers.queue import Queue

_NO_HISTORY = "job history"
"""qstat and qselect say so of -x where the server keeps none (`job_history_enable`); qstat exits with 0."""


class PbsQueue(Queue):
    """PBS, as far as one process has asked it."""

    scheduler = SCHEDULER
    asks_by_id = True
    lag = 0.0
    unknown = 153
    cancel_patience = 60.0  # KILL follows TERM after kill_delay, 10 s unless a queue says otherwise

    def __init__(self, environ: Mapping[str, str] | None = None, patience: float = PATIENCE):
        super().__init__(environ, patience)
        self._keeps_history = True

    def elsewhere(self, clusters: Collection[str]) -> str | None:
        """Never: a job's id names its server, which qstat then asks."""
        return None

    def told_of(self, jobs: list[str]) -> tuple[subprocess.CompletedProcess[str], list[JobTold], set[str]]:
        """What qstat tells."""
        done = self._run(partial(queue_command, jobs))
        return done, parse_queue(done.stdout) if done.returncode >= 0 else [], parse_denied(done.stderr)

    def search(self, name: str, since: float) -> list[JobTold]:
        """Those of a name."""
        return self._selected(self._run(partial(find_command, self.user_name, name)))

    def unfinished(self) -> list[JobTold]:
        """What qselect finds of this user's, by any name: qalter changes names.

        Raises:
            Silent: qselect or qstat does not answer.
        """
        found = run_to_end(find_command(self.user_name, history=False), self.patience, self.environ)
        return [one for one in self._selected(found) if one.goes_on]

    def is_of(self, told: JobTold, run: Run) -> bool:
        """Whether a job was submitted where a run directory lies, which is named by its id."""
        return told.folder == str(run.path.parent)

    def _selected(self, found: subprocess.CompletedProcess[str]) -> list[JobTold]:
        """The jobs whose ids qselect has printed.

        Raises:
            Silent: it failed, or qstat did not tell of one of them, whatever it said.
        """
        if found.returncode:
            raise Silent(failure_of(found))
        jobs = parse_found(found.stdout)
        told, unheard = self.told(jobs)
        for job in sorted({*jobs} - {one.job for one in told}):
            raise Silent(unheard.get(job, f"qselect knows of job {job}, but qstat does not"))
        return told

    def _run(self, command: Callable[..., list[str]]) -> subprocess.CompletedProcess[str]:
        """What a command comes to, asked for jobs that have ended where the server remembers them.

        Raises:
            Silent: it does not answer.
        """
        if self._keeps_history:
            done = run_to_end(command(history=True), self.patience, self.environ)
            if _NO_HISTORY not in done.stderr:
                return done
            self._keeps_history = False
        return run_to_end(command(history=False), self.patience, self.environ)


QUEUE = PbsQueue
