"""submitit's view of a rank in a job: its number, its function and its paths.

submitit finds the class by its entry point in pyproject.toml, and uses it because the script sets
SUBMITIT_EXECUTOR=castoff. One class serves every scheduler and launcher, because RankEnv finds the rank's
number under each.

functions/M.pkl            the function of member M and its arguments; a checkpoint replaces it
attempts/M.N/result-*.pkl  what the function returned or its traceback, one file for each rank
attempts/M.N/leaving       the time at which all ranks exit (`castoff.launcher.executors.stopping`)

Every rank imports this module, so other modules are imported late.
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
    """The files of a run directory under submitit's names; none depends on the scheduler's job id."""

    def __init__(self, run_path: Path, job_id: str | None, *, member: int, attempt: int, rank: int):
        super().__init__(run_path, job_id=job_id, task_id=rank)
        self.member = member
        self.attempt = attempt
        self.within = run_path
        """The checked path of the run directory, from which the function is read."""

    @property
    def folder(self) -> Path:
        """The run directory."""
        return self._folder  # submitit would replace %j in a folder's name by the job's id

    @property
    def submission_file(self) -> Path:
        """The script."""
        return self.folder / "job.sh"

    @property
    def submitted_pickle(self) -> Path:
        """The file with the function and its arguments."""
        return pickle_of(self.within, self.member)

    @property
    def attempt_folder(self) -> Path:
        """The folder with the records of the attempt."""
        return self.folder / "attempts" / f"{self.member}.{self.attempt}"

    @property
    def result_pickle(self) -> Path:
        """The file with the function's result on this rank, or its traceback."""
        return self.attempt_folder / f"result-{self.task_id:05d}.pkl"

    @property
    def stdout(self) -> Path:
        """The rank's log, or its node's log if the job has too many ranks for a log of each."""
        logs = self.folder / "logs" / f"{self.member}.{self.attempt}"
        log_of_rank = logs / f"rank-{self.task_id:05d}.log"
        if log_of_rank.exists() or not (logs / "node-00000.log").exists():
            return log_of_rank
        from castoff.launcher.runs.run import RunDirectory  # late: its imports would delay every rank

        layout = RunDirectory(self.folder).facts().layout
        ends = accumulate(ranks for ranks, nodes in layout for _ in range(nodes))
        return logs / f"node-{sum(end <= self.task_id for end in ends):05d}.log"

    @property
    def stderr(self) -> Path:
        """The same path as `stdout`, because a rank's log contains both streams."""
        return self.stdout


class CastoffJobEnvironment(job_environment.JobEnvironment):
    """A rank of a job that `castoff.executor` submitted. submitit makes an instance wherever it needs one."""

    _env: ClassVar = {"num_tasks": "WORLD_SIZE", "global_rank": "RANK", "local_rank": "LOCAL_RANK"}

    @property
    def hostnames(self) -> Sequence[str]:
        """The attempt's hosts, in the order of their node numbers."""
        try:
            hosts = (_attempt_folder() / "hosts").read_text(encoding="utf-8").split()
        except FileNotFoundError:  # the local scheduler has only this host
            hosts = []
        return hosts or [socket.gethostname()]

    @property
    def raw_job_id(self) -> str:
        """The scheduler's id of the job, or of the array that contains it."""
        from castoff.launcher.runs.records import (  # late: their imports would delay every rank
            Start,
            read,
        )

        start = read(_attempt_folder() / "start.json", Start)
        return (start and start.job) or "unknown"

    @property
    def array_job_id(self) -> str | None:
        """The id of the array that contains the job; None if it is not in an array."""
        return self.raw_job_id if self.array_task_id is not None else None

    @property
    def array_task_id(self) -> str | None:
        """The job's index in the scheduler's array; None if it is not in an array."""
        if int(os.environ["CASTOFF_ARRAY_COUNT"]) == 1:
            return None
        # If an array was submitted in parts, the indices of each part begin at 0 again.
        offset = int(os.environ.get("CASTOFF_ARRAY_OFFSET") or 0)
        return str(int(os.environ["CASTOFF_ARRAY_INDEX"]) - offset)

    @property
    def job_id(self) -> str:
        """The scheduler's id, such as `37` or `37_3`."""
        index = self.array_task_id
        return member_job_id(self.raw_job_id, None if index is None else int(index))

    @property
    def num_nodes(self) -> int:
        """The number of the job's hosts."""
        return len(self.hostnames)

    @property
    def node(self) -> int:
        """The number of this host in the job; raises a PlacementError if it is unknown."""
        number = RankEnv.detect().node_rank
        if number is None:
            raise PlacementError("no variable gives the node's number in the job; use RANK and LOCAL_RANK")
        return number

    @property
    def paths(self) -> FunctionPaths:
        """The paths of this rank's function and result.

        Raises:
            CastoffError: others could have written to the run directory, or it contains no function.
        """
        run_path = Path(os.environ["SUBMITIT_FOLDER"])
        member, attempt = int(os.environ["CASTOFF_ARRAY_INDEX"]), int(os.environ["CASTOFF_ATTEMPT"])
        paths = FunctionPaths(run_path, self.job_id, member=member, attempt=attempt, rank=self.global_rank)
        paths.within = held(run_path)
        if not paths.submitted_pickle.exists():
            raise CastoffError(
                f"{pickle_of(run_path, member)}: does not exist; this script runs functions that "
                "castoff.executor puts into its run directory, so it cannot be submitted by hand"
            )
        return paths

    def _requeue(self, countdown: int) -> None:
        """Ask for the job to be resumed; its script counts the attempts and restarts it."""
        request_resume(Path(os.environ["CASTOFF_OUTCOME_FILE"]))

    def _handle_signals(self, paths: JobPaths, submission: DelayedSubmission) -> None:
        """Install signal handlers that ask the function to stop; only the job's script restarts it."""
        pickle = pickle_of(paths.folder, int(os.environ["CASTOFF_ARRAY_INDEX"]))
        Stopping(submission, pickle, self._usr_sig()).begin()


@cache
def held(run_path: Path) -> Path:
    """Check that a run directory is the user's own; return a path that still leads to it if somebody replaces
    it.
    """
    with opened(run_path) as directory:
        return Path(f"/proc/self/fd/{os.dup(directory)}")


def _attempt_folder() -> Path:
    return Path(os.environ["CASTOFF_ATTEMPT_DIR"])
