"""What submits a run's script, or starts it again: the commands, one or one for each part of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from launcher.config.quantities import cpulist
from launcher.runs.plan import Plan
from launcher.runs.script import directives_of

ELSEWHERE = "choose another folder with --runs-dir or CASTOFF_RUNS_DIR"
"""What to do about a run directory that a scheduler cannot be told."""


class Part(NamedTuple):
    """Members of an array that one job of the scheduler holds."""

    members: Sequence[int]
    """Ascending."""
    offset: int = 0
    """What a member's number is more than the index that the scheduler gives it."""

    @property
    def indices(self) -> str:
        """The scheduler's indices, as `0-7` or `2,5`."""
        return cpulist([member - self.offset for member in self.members])


class Order(NamedTuple):
    """A command that submits a script, and the variables that it needs in its environment."""

    environment: dict[str, str]
    command: list[str]


class Submission(NamedTuple):
    """A script to submit, and what only its submission knows."""

    plan: Plan
    run_dir: str
    dependency: str | None = None
    """In the scheduler's words; None where the script's own directives say all, empty where they say what
    has held already."""
    part: Part | None = None
    """None: all that the script's own directives say."""
    link: int | None = None
    """Which job of a chain it is; None: of none."""

    @property
    def environment(self) -> dict[str, str]:
        """What a submit command needs in its environment, and hands on by name.

        sbatch and qsub would split a value on their command line at a comma.
        """
        told = {"CASTOFF_RUN_DIR": self.run_dir}
        if self.part and self.part.offset:
            told["CASTOFF_ARRAY_OFFSET"] = str(self.part.offset)
        if self.link is not None:
            told["CASTOFF_CHAIN"] = str(self.link)
        return told

    @property
    def script(self) -> str:
        """The script's absolute path: unique, so it finds the job again in the queue."""
        return f"{self.run_dir}/job.sh"


class Sending(NamedTuple):
    """One command that starts members of a run."""

    part: Part | None
    """None: not an array."""
    order: Callable[[str | None], Order]
    """The command; it may have to wait for the job before it, whose id this is given."""
    link: int | None = None
    """Which job of a chain it is; None: of none."""


class Restart(NamedTuple):
    """What is known of a run that starts again."""

    script: str
    """Its head."""
    run_dir: str
    begin: Mapping[int, int]
    """The members that start, and with which attempt."""
    submitted: bool
    """Whether castoff made the run directory; else a script that stood alone did."""
    dependency: str | None
    """In the scheduler's words; empty: none; None: what the script's own directive says."""
    chain: int = 0
    """How many jobs go on one after the other, submitted beforehand; 0: no chain."""


def directive_in(script: str, prefix: str) -> str | None:
    """The value of a script's directive that begins so, as `#SBATCH --export=`; None if there is none."""
    found = re.search(f"^{re.escape(prefix)}(.*)$", directives_of(script), re.MULTILINE)
    return found.group(1).strip("\"'") if found else None


def variables_again(script: str, run_dir: str, attempt: int, part: Part | None = None) -> dict[str, str]:
    """What tells a script which run directory is its own, and which attempt it is."""
    told = {"CASTOFF_RUN_DIR": run_dir, "CASTOFF_ATTEMPT": str(attempt)}
    if part and part.offset:
        told["CASTOFF_ARRAY_OFFSET"] = str(part.offset)
    if re.search(r"^castoff_requeue_max=", script, re.MULTILINE):  # it counts how often it was requeued
        told["CASTOFF_FIRST_ATTEMPT"] = str(attempt)
    return told


def names_again(
    script: str, passed: str | None, variables: Mapping[str, str], *, secrets_kept: bool = False
) -> str:
    """The variables that sbatch or qsub hands on: those that the script asks for, and ours.

    With `secrets_kept` the run directory holds those of env_from, so the script reads them there.
    """
    needed = re.findall(r"^castoff_need (\w+)$", script, re.MULTILINE)
    asked = [name for name in (passed or "").split(",") if name not in ("", "NIL", "NONE")]
    if secrets_kept:
        asked, needed = [name for name in asked if name not in needed], []
    return ",".join(dict.fromkeys([*asked, *needed, *variables]))
