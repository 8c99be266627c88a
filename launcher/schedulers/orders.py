"""What submits a run's script, or starts it again: the commands, one or one for each part of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from launcher.config.quantities import cpulist
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


class Sending(NamedTuple):
    """One command that submits a run's script, or starts members of it again."""

    environment: dict[str, str]
    """The variables that it needs, and hands on by name: sbatch and qsub would split a value at a comma."""
    command: Callable[[str | None], list[str]]
    """It may have to wait for the job before it, whose id this is given."""
    part: Part | None = None
    """None: not an array."""
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


def variables(run_dir: str, part: Part | None = None, link: int | None = None) -> dict[str, str]:
    """What tells a script which run directory is its own, and which part of the run it is."""
    told = {"CASTOFF_RUN_DIR": run_dir}
    if part and part.offset:
        told["CASTOFF_ARRAY_OFFSET"] = str(part.offset)
    if link is not None:
        told["CASTOFF_CHAIN"] = str(link)
    return told


def variables_again(
    restart: Restart, attempt: int, part: Part | None = None, link: int | None = None
) -> dict[str, str]:
    """The same, and which attempt it is."""
    told = {**variables(restart.run_dir, part, link), "CASTOFF_ATTEMPT": str(attempt)}
    if re.search(r"^castoff_requeue_max=", restart.script, re.MULTILINE):  # it counts its requeues
        told["CASTOFF_FIRST_ATTEMPT"] = str(attempt)
    return told


def names_again(restart: Restart, passed: str | None, variables: Mapping[str, str]) -> str:
    """The variables that sbatch or qsub hands on: those that the script asks for, and ours.

    Where castoff made the run directory, it holds those of env_from, and the script reads them there.
    """
    needed = re.findall(r"^castoff_need (\w+)$", restart.script, re.MULTILINE)
    asked = [name for name in (passed or "").split(",") if name not in ("", "NIL", "NONE")]
    if restart.submitted:
        asked, needed = [name for name in asked if name not in needed], []
    return ",".join(dict.fromkeys([*asked, *needed, *variables]))
