"""Asks Flux about jobs: the only module that runs `flux jobs` for runs.

One question tells of all runs, in one call for as many jobs as fit.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence

from launcher.runs.run import Run
from launcher.schedulers.command import Silent, failure_of, run_to_end
from launcher.schedulers.flux.jobs import (
    MOST_ASKED,
    f58,
    find_command,
    parse_denied,
    parse_queue,
    queue_command,
    unfinished_command,
)
from launcher.schedulers.flux.scheduler import SCHEDULER
from launcher.schedulers.jobs import JobTold
from launcher.schedulers.queue import Queue


class FluxQueue(Queue):
    """Flux, as far as one process has asked it."""

    scheduler = SCHEDULER
    asks_by_id = True
    lag = 0.0
    cancel_patience = 60.0  # KILL follows TERM after kill-timeout, 5 s unless the site says otherwise

    def elsewhere(self, clusters: Collection[str]) -> str | None:
        """Each instance has ids of its own: that of the machine, and that of each job of it."""
        here = self.scheduler.configuration(self.environ).cluster
        theirs = sorted({*clusters} - {here})
        if here is None or not theirs:
            return None
        return f"it is a job of the Flux instance {theirs[0]}, and this is {here}: ask there (flux proxy)"

    def told(self, jobs: Iterable[str]) -> tuple[list[JobTold], dict[str, str]]:
        """What flux jobs tells."""
        found: list[JobTold] = []
        unheard: dict[str, str] = {}
        wanted = iter(sorted({*jobs}, key=lambda job: (len(job), job)))
        while some := list(itertools.islice(wanted, MOST_ASKED)):
            done = run_to_end(queue_command(some), self.patience, self.environ)
            told = parse_queue(done.stdout)
            missing = {*some} - {one.job for one in told} - parse_denied(done.stderr)
            if len(missing) == len(some):
                raise Silent(failure_of(done))
            found += told
            unheard |= dict.fromkeys(missing, "flux jobs leaves it out of its answer")
        return found, unheard

    def find(self, script: str, name: str, since: float) -> list[JobTold] | None:
        """The jobs of a script, by the jobs' name; None where Flux does not answer."""
        try:
            return [one for one in self._told_by(find_command(name)) if one.runs(script)]
        except Silent:
            return None

    def unfinished(self) -> list[JobTold]:
        """What waits or runs, whatever its name.

        Raises:
            Silent: Flux does not answer.
        """
        return [one for one in self._told_by(unfinished_command()) if one.stage in ("pending", "running")]

    def cancel(self, jobs: Sequence[str]) -> dict[str, str]:
        """Have jobs ended, by the ids with which Flux names those that it refuses."""
        theirs = {f58(job): job for job in jobs}
        return {theirs[job]: why for job, why in super().cancel(list(theirs)).items()}

    def is_of(self, told: JobTold, run: Run) -> bool:
        """Whether a job was submitted where a run directory lies, which is named by its id."""
        return told.folder in (str(run.path.parent), str(run.path))

    def _told_by(self, command: list[str]) -> list[JobTold]:
        """The jobs in an answer.

        Raises:
            Silent: there is none.
        """
        done = run_to_end(command, self.patience, self.environ)
        if done.returncode:
            raise Silent(failure_of(done))
        return parse_queue(done.stdout)


QUEUE = FluxQueue
