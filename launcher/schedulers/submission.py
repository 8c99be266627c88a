"""What every scheduler is told at a submission, beside the script."""

from __future__ import annotations

from typing import NamedTuple

from launcher.planning import Plan


class Submission(NamedTuple):
    """A script to submit, and what only its submission knows."""

    plan: Plan
    run_dir: str
    dependency: str | None = None
    """In the scheduler's words; None where the script's own directives say all."""

    @property
    def environment(self) -> dict[str, str]:
        """What sbatch or qsub needs in its environment, and hands on by name.

        Both would split a value on their command line at a comma.
        """
        return {} if self.plan.scheduler == "local" else {"CASTOFF_RUN_DIR": self.run_dir}

    @property
    def script(self) -> str:
        """The script's absolute path: unique, so it finds the job again in the queue."""
        return f"{self.run_dir}/job.sh"
