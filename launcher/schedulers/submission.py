"""What every scheduler is told at a submission, beside the script."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from launcher.planning import Plan

ELSEWHERE = "choose another folder with --runs-dir or CASTOFF_RUNS_DIR"
"""What to do about a run directory that a scheduler cannot be told."""


class ByHand(NamedTuple):
    """A command for somebody to type, and the variables to put before it."""

    environment: dict[str, str]
    command: list[str]


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


def directive_in(script: str, prefix: str) -> str | None:
    """The value of a script's directive that begins so, as `#SBATCH --export=`; None if there is none."""
    found = re.search(f"^{re.escape(prefix)}(.*)$", script, re.MULTILINE)
    return found.group(1).strip("\"'") if found else None


def variables_again(script: str, run_dir: str, attempt: int) -> dict[str, str]:
    """What tells a script that stands alone which run directory is its own, and which attempt it is."""
    told = {"CASTOFF_RUN_DIR": run_dir, "CASTOFF_ATTEMPT": str(attempt)}
    if "CASTOFF_FIRST_ATTEMPT" in script:  # it counts how often it was requeued
        told["CASTOFF_FIRST_ATTEMPT"] = str(attempt)
    return told


def names_again(script: str, passed: str | None, variables: Mapping[str, str]) -> str:
    """The variables that sbatch or qsub hands on: those that the script asks for, and ours."""
    needed = re.findall(r"^castoff_need (\w+)$", script, re.MULTILINE)
    asked = [name for name in (passed or "").split(",") if name not in ("", "NIL", "NONE")]
    return ",".join(dict.fromkeys([*asked, *needed, *variables]))
