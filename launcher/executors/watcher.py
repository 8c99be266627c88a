"""Query the states of all submitit jobs at once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

from submitit.core import core, logger

from castoff.launcher.errors import CastoffError
from castoff.launcher.runs.run import RunDirectory
from castoff.launcher.runs.states import MemberStatus, RunStatus, failure_words
from castoff.launcher.status.poller import Poller
from castoff.launcher.status.watch import statuses

STATES = {
    "done": "COMPLETED",
    "failed": "FAILED",
    "walltime": "TIMEOUT",
    "cancelled": "CANCELLED",
    "resume": "CANCELLED",  # stopped on request; it can be resumed
    "preempted": "PREEMPTED",
    "out-of-memory": "OUT_OF_MEMORY",
    "node-failure": "NODE_FAIL",
    "unknown": "UNKNOWN",
}
"""The states of endings in Slurm's terms, which submitit uses."""

_SOON = 2.0
"""Minimum time between two queries, in seconds, as in submitit."""


class Known(NamedTuple):
    """The result of the last query about a job."""

    run: RunStatus
    member: MemberStatus

    @property
    def over(self) -> bool:
        """Whether the job is over for good."""
        if self.member.state == "unknown":
            return not self.run.unsettled
        return self.member.state == "ended" or self.member.dependency_never_satisfied


def key_of(run_path: Path, member: int) -> str:
    """A unique key for a job, since schedulers reuse their ids."""
    return f"{run_path}:{member}"


class RunWatcher(core.InfoWatcher):
    """Queries the states of all jobs' runs at once, as often as submitit does."""

    def __init__(self, delay_s: int = 60):
        super().__init__(delay_s)
        self.known: dict[str, Known] = {}
        """The results of the last query, by the jobs' keys."""
        self._poller = Poller()

    def update_if_long_enough(self, mode: str) -> None:
        """Query if enough time has passed. The mode `soon` (not in submitit) is for a job that seems to be
        over.
        """
        if mode == "force":
            self._poller = Poller()  # a new poller queries at once, and then less and less often
        if mode != "soon":
            super().update_if_long_enough(mode)
        elif time.time() - self._last_status_check > _SOON:
            self.update()

    def update(self) -> None:
        """Query every run that has a job that is not over."""
        waiting = self._registered - self._finished
        runs = {key.rpartition(":")[0] for key in waiting}
        if not runs:
            return
        self._num_calls += 1
        answers = self._look([Path(path) for path in sorted(runs)])
        self._last_status_check = time.time()
        for run in answers:
            for member in run.members:
                key = key_of(Path(run.directory), member.member)
                self.known[key] = known = Known(run, member)
                self._info_dict[key] = _info(known)
                if known.over:
                    self._finished.add(key)

    def _look(self, paths: list[Path]) -> list[RunStatus]:
        try:
            return statuses([RunDirectory(path) for path in paths], self._poller)
        except CastoffError as error:
            if len(paths) > 1:  # query each run alone, since an unreadable run must not hide the others
                return [status for path in paths for status in self._look([path])]
            logger.get_logger().warning(
                f"castoff: {paths[0].name} could not be queried; its last known state is used: {error}"
            )
            return []

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """A job's state in Slurm's terms; UNKNOWN if it is not known."""
        return self.get_info(job_id, mode).get("State", "UNKNOWN")

    def is_done(self, job_id: str, mode: str = "standard") -> bool:
        """Whether a job is over, whatever its state."""
        self.get_info(job_id, mode)
        return job_id in self._finished

    def reopen(self, key: str) -> None:
        """Query a finished job again, because it was resumed."""
        if key in self._finished:
            self._finished.discard(key)
            self.known.pop(key, None)
            self._info_dict.pop(key, None)
            self._last_status_check = float("-inf")


def _info(known: Known) -> dict[str, str]:
    """The value that `job.get_info()` returns."""
    run, member = known
    last = member.attempts[-1] if member.attempts else None
    ended = known.over and member.state != "pending"
    facts = {
        "JobID": run.job,
        "State": STATES[member.ending or "unknown"] if ended else member.state.upper(),
        "NodeList": last.host if last else None,
        "ExitCode": None if last is None or last.code is None else str(last.code),
        "Ending": member.ending,
        "Reason": member.reason or (last.reason if last else None) or run.reason,
        "Attempts": str(len(member.attempts)),
        "Failure": None if last is None or last.failure is None else failure_words(last.failure),
        "Run": run.directory,
    }
    return {name: text for name, text in facts.items() if text is not None}
