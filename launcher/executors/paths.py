"""Where a run directory keeps what submitit asks for: the functions, what they return, and their logs.

functions/M.pkl            the function of member M and its arguments; a checkpoint takes its place
attempts/M.N/result-*.pkl  what it returned, or its traceback, one for each rank
attempts/M.N/leaving       how rank 0 tells the others that they go on later (`launcher.executors.stopping`)

Every rank loads this module.
"""

from __future__ import annotations

from pathlib import Path

from submitit.core import utils

FUNCTIONS = "functions"
"""The folder of pickled functions in a run directory."""


def pickle_of(run_path: Path, member: int) -> Path:
    """The pickled function of a member."""
    return run_path / FUNCTIONS / f"{member}.pkl"


def member_job_id(job: str, index: int | None) -> str:
    """The id of one job of an array in its scheduler's own spelling: `37_3`, PBS's `7[3].head`."""
    if index is None:
        return job
    return job.replace("[]", f"[{index}]", 1) if "[]" in job else f"{job}_{index}"


class FunctionPaths(utils.JobPaths):
    """submitit's names for what lies in a run directory.

    None of them depends on the scheduler's id: all is in its place before there is one.
    """

    def __init__(self, run_path: Path, job_id: str | None, *, member: int, attempt: int, rank: int):
        super().__init__(run_path, job_id=job_id, task_id=rank)
        self.member = member
        self.attempt = attempt

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
        return pickle_of(self.folder, self.member)

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
        return logs / f"node-{self._node():05d}.log"

    @property
    def stderr(self) -> Path:
        """The same log: it holds both."""
        return self.stdout

    def _node(self) -> int:
        """The node of this rank, as the plan laid the ranks out."""
        from launcher.runs.run import Run  # late: what it needs takes each rank some time

        node, before = 0, 0
        for ranks, nodes in Run(self.folder).facts().layout:
            if self.task_id < before + ranks * nodes:
                return node + (self.task_id - before) // ranks
            node, before = node + nodes, before + ranks * nodes
        return 0
