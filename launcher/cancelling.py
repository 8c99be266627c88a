"""Ending runs: castoff's own scheduler is asked to, or Slurm; and seen to it that nothing of them is left."""

from __future__ import annotations

import shlex
import time

from launcher.errors import CastoffError, printable
from launcher.local.control import cancel, is_alive, other_host, taken
from launcher.queue import Queue
from launcher.records import Submission, read
from launcher.runs import Run
from launcher.status import RunStatus
from launcher.watch import status

_POLL = 0.05
_SLURM_POLL = 0.5
_PATIENCE = 30.0
"""Seconds: more than the scheduler takes for TERM, KILL and what is left behind."""
_SLURM_PATIENCE = 120.0
"""The same on Slurm, where an administrator chooses them: KillWait is 30 s unless a site says otherwise."""


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
        self._queue = Queue()
        self._begun = time.monotonic()
        if now.state == "ended":
            return
        if now.scheduler == "slurm" and taken(run) is None:
            self._ask_slurm(now)
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
        return _SLURM_PATIENCE if self._jobs else _PATIENCE

    def wait(self) -> bool:
        """Wait until nothing of it is left, within reason; whether that came about."""
        while self._goes_on():
            if time.monotonic() - self._begun > self.patience:
                return False
            time.sleep(_SLURM_POLL if self._jobs else _POLL)
        return True

    def _goes_on(self) -> bool:
        if not self.asked:
            return False
        if self._jobs:
            answer = self._queue.ask()
            return bool(answer.silence) or any(
                one.job in self._jobs and one.stage in ("pending", "running") for one in answer.jobs.values()
            )
        return is_alive(self.run) or (other_host(self.run) is not None and not status(self.run).final)

    def _ask_slurm(self, now: RunStatus) -> None:
        if is_alive(self.run):
            raise CastoffError(f"{now.id}: it is just being submitted; cancel it when it has been")
        answer = self._queue.ask()
        if answer.silence and not self.run.submission():
            raise CastoffError(_by_hand(now))  # whose job it is cannot be confirmed
        if answer.silence:
            raise CastoffError(f"{now.id}: Slurm could not be asked, so it goes on: {answer.silence}")
        left = [one for one in answer.jobs.values() if one.stage in ("pending", "running")]
        if self.run.submission():
            jobs = {one.job for one in left if one.runs(str(self.run.script))}
        else:
            jobs = {one.job for one in left if one.job == now.job}
            if any(self._queue.script_of(job) != self._script() for job in jobs):
                raise CastoffError(_by_hand(now))  # another cluster's job may have the same id
        if not jobs and now.unsettled:
            raise CastoffError(printable(f"{now.id}: {now.reason}"))
        if jobs:
            try:
                self._queue.cancel(sorted(jobs, key=int))
            except CastoffError as error:
                raise CastoffError(printable(f"{now.id}: {error}")) from None
            self._jobs, self.asked = list(jobs), True

    def _script(self) -> bytes | None:
        try:
            return self.run.script.read_bytes()
        except OSError as error:
            raise CastoffError(f"{self.run.script}: cannot be read: {error.strerror}") from error


def _by_hand(now: RunStatus) -> str:
    """How a run is ended that castoff cannot end."""
    job = shlex.quote(now.job) if now.job else "its job"
    ways = {"slurm": f"scancel {job}", "pbs": f"qdel {job}"}
    who = ways.get(now.scheduler, "end the process that runs its script")
    return printable(f"{now.id}: castoff did not submit it, so it cannot end it; {who}")
