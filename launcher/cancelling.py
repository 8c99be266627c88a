"""Ending runs: their scheduler is asked to, and seen to it that nothing of them is left."""

from __future__ import annotations

import shlex
import time

from launcher.errors import CastoffError, printable
from launcher.local.control import cancel, is_alive, other_host, taken
from launcher.queue import Answer, Queue
from launcher.queues import queue_of
from launcher.records import Submission, read
from launcher.runs import Run
from launcher.scenes import survey
from launcher.schedulers.jobs import JobTold
from launcher.status import RunStatus
from launcher.watch import status

_POLL = 0.05
_QUEUE_POLL = 0.5
_PATIENCE = 30.0
"""Seconds: more than castoff's own scheduler takes for TERM, KILL and what is left behind."""


class Cancellation:
    """The end of one run, from the wish to when all of it is gone."""

    def __init__(self, run: Run, now: RunStatus):
        """Ask its scheduler to end it; `now` is how it is.

        Raises:
            CastoffError: it cannot be asked, or refuses.
        """
        self.run = run
        self.asked = False
        """Whether there was anything to end."""
        self._jobs: list[str] = []
        self._queue: Queue | None = None
        self._begun = time.monotonic()
        if now.state == "ended":
            return
        if now.scheduler in ("slurm", "pbs") and taken(run) is None:
            self._ask_queue(queue_of(now.scheduler), now)
            return
        ours = now.scheduler == "local" or taken(run) is not None  # or a launch in an allocation
        if not ours or read(run.path / "submission.json", Submission) is None:
            raise CastoffError(_by_hand(now))
        if now.state != "unknown" or other_host(run) is not None:
            cancel(run)
            self.asked = True

    @property
    def patience(self) -> float:
        """Seconds within which all of it should be gone."""
        return self._queue.cancel_patience if self._queue else _PATIENCE

    def wait(self) -> bool:
        """Wait until nothing of it is left, within reason; whether that came about."""
        while self._goes_on():
            if time.monotonic() - self._begun > self.patience:
                return False
            time.sleep(_QUEUE_POLL if self._queue else _POLL)
        return True

    def _goes_on(self) -> bool:
        if not self.asked:
            return False
        if self._queue:
            answer = self._queue.ask(self._jobs)
            silent = answer.silence_on(self._jobs) is not None
            return silent or any(one.job in self._jobs for one in _left(answer))
        return is_alive(self.run) or (other_host(self.run) is not None and not status(self.run).final)

    def _ask_queue(self, queue: Queue, now: RunStatus) -> None:
        if is_alive(self.run):
            raise CastoffError(f"{now.id}: it is just being submitted; cancel it when it has been")
        queued = survey(self.run).queued
        asked = queued.jobs if queued else set()
        answer = queue.ask(asked)
        silence = answer.silence_on(sorted(asked))
        if silence and not self.run.submission():
            raise CastoffError(_by_hand(now))  # whose job it is cannot be confirmed
        if silence:
            raise CastoffError(f"{now.id}: {queue.name} could not be asked, so it goes on: {silence}")
        if self.run.submission():
            jobs = {one.job for one in _left(answer) if one.runs(str(self.run.script))}
        else:
            own = [one for one in _left(answer) if one.job == now.job]
            if not all(queue.is_of(one, self.run) for one in own):
                raise CastoffError(_by_hand(now))
            jobs = {one.job for one in own}
        if not jobs and now.unsettled:
            raise CastoffError(printable(f"{now.id}: {now.reason}"))
        if jobs:
            try:
                # The newest first: the end of one may let go another that waits for it.
                queue.cancel(sorted(jobs, key=lambda job: (len(job), job), reverse=True))
            except CastoffError as error:
                raise CastoffError(printable(f"{now.id}: {error}")) from None
            self._jobs, self._queue, self.asked = list(jobs), queue, True


def _left(answer: Answer) -> list[JobTold]:
    return [one for one in answer.jobs.values() if one.stage in ("pending", "running")]


def _by_hand(now: RunStatus) -> str:
    """How a run is ended that castoff cannot end."""
    job = shlex.quote(now.job) if now.job else "its job"
    ways = {"slurm": f"scancel {job}", "pbs": f"qdel {job}"}
    who = ways.get(now.scheduler, "end the process that runs its script")
    return printable(f"{now.id}: castoff did not submit it, so it cannot end it; {who}")
