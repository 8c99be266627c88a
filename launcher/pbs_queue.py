"""Asks PBS about jobs, and ends them: the only module that runs qstat, qselect and qdel for runs.

One qstat answers for all runs, in one call for as many jobs as fit.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from launcher.queue import Answer, Queue, Silent, answer_of, must
from launcher.runs import Run
from launcher.schedulers.jobs import JobTold
from launcher.schedulers.pbs import cancel_command
from launcher.schedulers.pbs_jobs import (
    MOST_ASKED,
    UNKNOWN_JOBS,
    PbsJob,
    find_command,
    parse_found,
    parse_queue,
    queue_command,
)

_PATIENCE = 30.0
"""Seconds for an answer: what a busy server may take."""

_NO_HISTORY = "job history"
"""qstat and qselect say so of -x where the server keeps none (`job_history_enable`); qstat exits with 0."""


class PbsQueue(Queue):
    """PBS, as far as one process has asked it."""

    name = "PBS"
    asks_by_id = True
    lag = 0.0
    cancel_patience = 60.0  # KILL follows TERM after kill_delay, 10 s unless a queue says otherwise

    def __init__(self, environ: Mapping[str, str] | None = None):
        super().__init__(environ)
        self._keeps_history = True

    def ask(self, jobs: Collection[str]) -> Answer:
        """Ask qstat about jobs."""
        try:
            return Answer.of(self._told(jobs))
        except Silent as why:
            return Answer({}, frozenset(), str(why), why.lasting)

    def history(self, jobs: Iterable[str]) -> dict[str, list[JobTold]] | None:
        """Nothing: `ask` tells all that PBS remembers."""
        return {}

    def find(self, script: str, name: str, since: float) -> list[JobTold] | None:
        """The jobs of a script, by the jobs' name; None where PBS does not answer."""
        try:
            jobs = parse_found(self._run(partial(find_command, self.user_name, name)))
            return [one for one in self._told(jobs) if one.runs(script)]
        except Silent:
            return None

    def cancel(self, jobs: Iterable[str]) -> None:
        """Have PBS end jobs: all of an array's.

        Raises:
            CastoffError: it refuses; with its words.
        """
        must(cancel_command(jobs), _PATIENCE, self.environ)

    def is_of(self, told: JobTold, run: Run) -> bool:
        """Whether a job was submitted where a run directory lies, which is named by its id."""
        return isinstance(told, PbsJob) and told.folder == str(run.path.parent)

    def _told(self, jobs: Iterable[str]) -> list[PbsJob]:
        found: list[PbsJob] = []
        wanted = iter(sorted({*jobs}, key=lambda job: (len(job), job)))
        while some := list(itertools.islice(wanted, MOST_ASKED)):
            found += parse_queue(self._run(partial(queue_command, some)))
        return found

    def _run(self, command: Callable[..., list[str]]) -> str:
        """What a command prints, asked for jobs that have ended where the server remembers them.

        Raises:
            Silent: it does not answer.
        """
        if self._keeps_history:
            try:
                return answer_of(
                    command(history=True),
                    _PATIENCE,
                    self.environ,
                    accepted=UNKNOWN_JOBS,
                    denial=_NO_HISTORY,
                )
            except Silent as why:
                if _NO_HISTORY not in str(why):
                    raise
                self._keeps_history = False
        return answer_of(command(history=False), _PATIENCE, self.environ, accepted=UNKNOWN_JOBS)
