"""submitit's queries in a job: this process's rank, its function, and its paths.

submitit finds it by the entry point in pyproject.toml, and takes it where the script sets
SUBMITIT_EXECUTOR=castoff. RankEnv gives each rank's place, so one class serves every scheduler and launcher.

functions/M.pkl            the function of member M and its arguments; a checkpoint takes its place
attempts/M.N/result-*.pkl  what it returned, or its traceback, one for each rank
attempts/M.N/leaving       how rank 0 asks the others to leave (`castoff.launcher.executors.stopping`)

Every rank loads this module.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import ClassVar

from submitit.core import job_environment, utils
from submitit.core.utils import DelayedSubmission, JobPaths

from castoff.launcher.errors import CastoffError, PlacementError
from castoff.launcher.executors.stopping import Stopping, request_resume
from castoff.launcher.ranks import RankEnv
from castoff.launcher.runs.directory import opened
from castoff.launcher.schedulers.job_info import member_job_id


def pickle_of(run_path: Path, member: int) -> Path:
    """The file with a member's pickled function."""
    return run_path / "functions" / f"{member}.pkl"


class FunctionPaths(utils.JobPaths):
    """submitit's names for the files of a run directory; none depends on the scheduler's job id."""

    def __init__(self, run_path: Path, job_id: str | None, *, member: int, attempt: int, rank: int):
        super().__init__(run_path, job_id=job_id, task_id=rank)
        self.member = member
        self.attempt = attempt
        self.within = run_path
        """The run directory from which the function is read."""

    @property
    def folder(self) -> Path:
        """The run directory."""
        return self._folder  # as it is: submitit would take a %j in a folder's name for the job's id

    @property
    def submission_file(self) -> Path:
        """The script."""
        return self.folder / "job.sh"

    @property
    def submitted_pickle(self) -> Path:
        """The function and its arguments."""
        return pickle_of(self.within, self.member)

    @property
    def attempt_folder(self) -> Path:
        """The records of the attempt."""
        return self.folder / "attempts" / f"{self.member}.{self.attempt}"

    @property
    def result_pickle(self) -> Path:
        """What the function returned on this rank, or its traceback."""
        return self.attempt_folder / f"result-{self.task_id:05d}.pkl"

    @property
    def stdout(self) -> Path:
        """The rank's log, else its node's, in a job with too many ranks for one each."""
        logs = self.folder / "logs" / f"{self.member}.{self.attempt}"
        own = logs / f"rank-{self.task_id:05d}.log"
        if own.exists() or not (logs / "node-00000.log").exists():
            return own
        from castoff.launcher.runs.run import RunDirectory  # late: what it needs takes each rank some time

        layout = RunDirectory(self.folder).facts().layout
        ends = accumulate(ranks for ranks, nodes in layout for _ in range(nodes))
        return logs / f"node-{sum(end <= self.task_id for end in ends):05d}.log"

    @property
    def stderr(self) -> Path:
        """The same log: it holds both."""
        return self.stdout


class CastoffJobEnvironment(job_environment.JobEnvironment):
    """A rank of a job that `castoff.executor` submitted. submitit creates one wherever it needs it."""

    _env: ClassVar = {"num_tasks": "WORLD_SIZE", "global_rank": "RANK", "local_rank": "LOCAL_RANK"}

    @property
    def hostnames(self) -> Sequence[str]:
        """The job's hosts, the first one first."""
        try:
            hosts = (_attempt_folder() / "hosts").read_text(encoding="utf-8").split()
        except FileNotFoundError:  # the local scheduler has one
            hosts = []
        return hosts or [socket.gethostname()]

    @property
    def raw_job_id(self) -> str:
        """The scheduler's id of the job, or of the array it belongs to."""
        from castoff.launcher.runs.records import (  # late: what they need takes each rank some time
            Start,
            read,
        )

        start = read(_attempt_folder() / "start.json", Start)
        return (start and start.job) or "unknown"

    @property
    def array_job_id(self) -> str | None:
        """The id of the array that the job belongs to; None if it is not in an array."""
        return self.raw_job_id if self.array_task_id is not None else None

    @property
    def array_task_id(self) -> str | None:
        """The job's index in the scheduler's array; None if it is not in an array."""
        if int(os.environ["CASTOFF_ARRAY_COUNT"]) == 1:
            return None
        # The function's number counts on where an array was submitted in parts.
        offset = int(os.environ.get("CASTOFF_ARRAY_OFFSET") or 0)
        return str(int(os.environ["CASTOFF_ARRAY_INDEX"]) - offset)

    @property
    def job_id(self) -> str:
        """The scheduler's id, as `37` or `37_3`."""
        index = self.array_task_id
        return member_job_id(self.raw_job_id, None if index is None else int(index))

    @property
    def num_nodes(self) -> int:
        """How many hosts there are."""
        return len(self.hostnames)

    @property
    def node(self) -> int:
        """The number of this host in the job; raises a PlacementError if it is not known."""
        found = RankEnv.detect().node_rank
        if found is None:
            raise PlacementError("no variable gives the node's number in the job; use RANK and LOCAL_RANK")
        return found

    @property
    def paths(self) -> FunctionPaths:
        """The paths of this rank's function and of its result.

        Raises:
            CastoffError: others can have written to the run directory, or it holds no function.
        """
        run_path = Path(os.environ["SUBMITIT_FOLDER"])
        member, attempt = int(os.environ["CASTOFF_ARRAY_INDEX"]), int(os.environ["CASTOFF_ATTEMPT"])
        paths = FunctionPaths(run_path, self.job_id, member=member, attempt=attempt, rank=self.global_rank)
        paths.within = held(run_path)
        if not paths.submitted_pickle.exists():
            raise CastoffError(
                f"{pickle_of(run_path, member)}: no function lies there; this script runs functions that "
                "castoff.executor puts into its run directory, so it cannot be submitted by hand"
            )
        return paths

    def _requeue(self, countdown: int) -> None:
        """Ask for the job to be resumed; its script counts how often, and restarts it."""
        request_resume(Path(os.environ["CASTOFF_OUTCOME_FILE"]))

    def _handle_signals(self, paths: JobPaths, submission: DelayedSubmission) -> None:
        """Have a signal ask the function to stop; only the script starts it again."""
        pickle = pickle_of(paths.folder, int(os.environ["CASTOFF_ARRAY_INDEX"]))
        Stopping(submission, pickle, self._usr_sig()).begin()


@cache
def held(run_path: Path) -> Path:
    """A run directory that was checked to be the user's own, kept open: its path may be replaced later."""
    with opened(run_path) as directory:
        return Path(f"/proc/self/fd/{os.dup(directory)}")


def _attempt_folder() -> Path:
    return Path(os.environ["CASTOFF_ATTEMPT_DIR"])
