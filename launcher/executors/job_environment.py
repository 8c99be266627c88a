"""What submitit's program asks in a job: who this process is, and which function is its own.

submitit finds it by the entry point in pyproject.toml, and takes it where the script sets
SUBMITIT_EXECUTOR=castoff. Who a rank is tells RankEnv, so one class serves every scheduler and starter.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from submitit.core import job_environment
from submitit.core.utils import DelayedSubmission, JobPaths

from launcher.errors import CastoffError, PlacementError
from launcher.executors.paths import FunctionPaths, member_job_id, pickle_of
from launcher.executors.stopping import Stopping, say_again
from launcher.ranks import RankEnv
from launcher.runs.directory import opened


class CastoffJobEnvironment(job_environment.JobEnvironment):
    """A rank of a job that `launcher.executors.executor` submitted.

    Nothing is looked up before it is asked for: submitit makes one of these wherever it is used.
    """

    @property
    def hostnames(self) -> Sequence[str]:
        """The job's hosts, the first one first."""
        try:
            told = (_attempt_folder() / "hosts").read_text(encoding="utf-8").split()
        except FileNotFoundError:  # the local scheduler has one
            told = []
        return told or [socket.gethostname()]

    @property
    def raw_job_id(self) -> str:
        """The scheduler's id of the job, or of the array that it belongs to."""
        from launcher.runs.records import Start, read  # late: what they need takes each rank some time

        start = read(_attempt_folder() / "start.json", Start)
        return (start and start.job) or "unknown"

    @property
    def array_job_id(self) -> str | None:
        """The same in an array, else None."""
        return self.raw_job_id if self.array_task_id is not None else None

    @property
    def array_task_id(self) -> str | None:
        """The index in the scheduler's array, else None.

        CASTOFF_ARRAY_INDEX is the function's number: it counts on where an array was submitted in parts.
        """
        if int(os.environ["CASTOFF_ARRAY_COUNT"]) == 1:
            return None
        offset = int(os.environ.get("CASTOFF_ARRAY_OFFSET") or 0)
        return str(int(os.environ["CASTOFF_ARRAY_INDEX"]) - offset)

    @property
    def job_id(self) -> str:
        """The scheduler's id, as `37` or `37_3`."""
        index = self.array_task_id
        return member_job_id(self.raw_job_id, None if index is None else int(index))

    @property
    def num_tasks(self) -> int:
        """How many ranks there are."""
        return RankEnv.detect().world_size

    @property
    def num_nodes(self) -> int:
        """How many hosts there are."""
        return len(self.hostnames)

    @property
    def node(self) -> int:
        """Which of the hosts this is.

        Raises:
            PlacementError: nothing tells.
        """
        found = RankEnv.detect().node_rank
        if found is None:
            raise PlacementError("no variable tells which node of the job this is; RANK and LOCAL_RANK do")
        return found

    @property
    def global_rank(self) -> int:
        """Which rank this is."""
        return RankEnv.detect().rank

    @property
    def local_rank(self) -> int:
        """Which rank of its host this is."""
        return RankEnv.detect().local_rank

    @property
    def paths(self) -> FunctionPaths:
        """Where this rank's function lies, and where its result belongs.

        Raises:
            CastoffError: the run directory is not this user's alone, or holds no function.
        """
        run_path = Path(os.environ["SUBMITIT_FOLDER"])
        paths = _OwnPaths(
            run_path,
            self.job_id,
            member=int(os.environ["CASTOFF_ARRAY_INDEX"]),
            attempt=int(os.environ["CASTOFF_ATTEMPT"]),
            rank=self.global_rank,
        )
        if not paths.submitted_pickle.exists():
            raise CastoffError(
                f"{pickle_of(run_path, paths.member)}: no function lies there; this script runs functions "
                "that launcher.executor puts into its run directory, so it cannot be submitted by hand"
            )
        return paths

    def __repr__(self) -> str:
        """In submitit's words; also where this process is no rank of a job, of which it says so."""
        try:
            return super().__repr__()
        except (KeyError, CastoffError):
            return f"JobEnvironment(cluster={self.cluster}, no rank of a job, hostname={self.hostname})"

    def _requeue(self, countdown: int) -> None:
        """Say that the job wants to go on; its script, which counts how often it did, starts it again."""
        say_again(Path(os.environ["CASTOFF_OUTCOME_FILE"]))

    def _handle_signals(self, paths: JobPaths, submission: DelayedSubmission) -> None:
        """See to it that the function is asked to stop; who starts it again is the script alone."""
        Stopping(
            submission,
            pickle_of(paths.folder, int(os.environ["CASTOFF_ARRAY_INDEX"])),
            RankEnv.detect(),
            attempt=_attempt_folder(),
            stop=Path(os.environ["CASTOFF_STOP_FILE"]),
            outcome=Path(os.environ["CASTOFF_OUTCOME_FILE"]),
        ).begin(self._usr_sig())


class _OwnPaths(FunctionPaths):
    """The same, of a run directory that this user alone can have written to; CastoffError if it is not."""

    @property
    def submitted_pickle(self) -> Path:
        """The function, through the open directory: what is unpickled there is what was looked at."""
        held = Path(f"/proc/self/fd/{_held(self.folder)}")
        return pickle_of(held if held.is_dir() else self.folder, self.member)


_open = contextlib.ExitStack()
"""Keeps a rank's run directory open to its end."""


@cache
def _held(run_path: Path) -> int:
    return _open.enter_context(opened(run_path))


def _attempt_folder() -> Path:
    return Path(os.environ["CASTOFF_ATTEMPT_DIR"])
