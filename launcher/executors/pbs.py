"""Functions as jobs of PBS, under the names that submitit's users look for."""

from __future__ import annotations

from submitit.core.core import R

from launcher.executors.jobs import FunctionJob
from launcher.executors.watcher import RunWatcher


class PbsInfoWatcher(RunWatcher):
    """The states of all jobs that `PbsExecutor` submitted: one qstat, however many ask."""


class PbsJob(FunctionJob[R]):
    """A function, or one of an array of them, as a job of PBS.

    Its `job_id` is what qsub printed: `3.head`, and `7[2].head` of an array. `PbsJob(run_dir, "3.head")` is
    again the job of that id. It stays that of the first submission when the job goes on as another one.
    """

    watcher = PbsInfoWatcher()
