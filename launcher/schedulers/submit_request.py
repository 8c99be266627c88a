"""What submits a run's script, or starts it again: the commands, one or one for each part of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from castoff.launcher.config.array_indices import index_list
from castoff.launcher.runs.records import Facts
from castoff.launcher.runs.script import directives_of


class Part(msgspec.Struct, frozen=True):
    """Members of an array that one job of the scheduler holds."""

    members: Sequence[int]
    """Ascending."""
    offset: int = 0
    """What a member's number is more than the index that the scheduler gives it."""
    tasks: Sequence[int] | None = None
    """The scheduler's indices of the members, where they are neither these nor so much less."""

    @property
    def indices(self) -> str:
        """The scheduler's indices, as `0-7` or `2,5`."""
        return index_list(self.tasks or [member - self.offset for member in self.members])


class SubmitCommand(msgspec.Struct, frozen=True):
    """One command that submits a run's script, or starts members of it again."""

    environment: dict[str, str]
    """The variables that it needs, and hands on by name: sbatch and qsub would split a value at a comma."""
    argv: Callable[[str | None], list[str]]
    """It may have to wait for the job before it, whose id this is given."""
    part: Part | None = None
    """None: not an array."""
    link: int | None = None
    """Which job of a chain it is; None: of none."""


class SubmitRequest(msgspec.Struct, frozen=True):
    """A run's script that is to be sent: for the first time, or again."""

    head: str
    """The script's."""
    run_dir: str
    begin: Mapping[int, int]
    """The members that start, and with which attempt."""
    dependency: str | None = None
    """In the scheduler's words; empty: none; None: what the script's own directive says."""
    chain: int = 0
    """How many jobs resume one another, submitted beforehand; 0: no chain."""
    resubmits: bool = False
    """Whether it was sent before."""
    needed: Sequence[str] = ()
    """The variables of env_from."""
    members: Sequence[int] = ()
    """All that the run has; empty: the scheduler's indices are theirs."""
    excluded: Sequence[str] = ()
    """Hosts to keep out of, beside those that the script's own directive names."""

    @classmethod
    def of(
        cls,
        planned: Facts,
        head: str,
        run_dir: str,
        dependency: str | None,
        begin: Mapping[int, int] | None = None,
    ) -> SubmitRequest:
        """That of a plan and its script's head, new; with `begin`, of a run's own script, again."""
        chain = 1 + planned.requeue_max if planned.requeue_how == "chain" else 0
        first, of_all = dict.fromkeys(planned.members, 0), planned.members
        resubmits = begin is not None
        return cls(head, run_dir, begin or first, dependency, chain, resubmits, planned.env_from, of_all)

    @property
    def links(self) -> Sequence[int | None]:
        """Which jobs of a chain there are; one, of none, where there is no chain."""
        return range(self.chain) if self.chain else [None]

    def dependency_of(self, link: int | None, before: str | None) -> str | None:
        """What a job waits for: of a chain, that the one before it has stopped early."""
        return f"afternotok:{before}" if before and link else self.dependency

    def directive(self, prefix: str) -> str | None:
        """The value of a directive that begins so, as `#SBATCH --export=`; None if there is none."""
        found = re.search(f"^{re.escape(prefix)}(.*)$", directives_of(self.head), re.MULTILINE)
        return found.group(1).strip("\"'") if found else None

    @property
    def keeps_output(self) -> bool:
        """Whether the job's output stays where the scheduler puts it, as a batch script's does."""
        return re.search(r"^castoff_run_script ", self.head, re.MULTILINE) is not None

    def variables(self, attempt: int, part: Part | None = None, link: int | None = None) -> dict[str, str]:
        """What tells a script which run directory is its own, and which part and attempt of the run it is."""
        found = {"CASTOFF_RUN_DIR": self.run_dir}
        if part and part.offset:
            found["CASTOFF_ARRAY_OFFSET"] = str(part.offset)
        if link is not None:
            found["CASTOFF_CHAIN"] = str(link)
        if self.resubmits:
            found["CASTOFF_ATTEMPT"] = str(attempt)
            if re.search(r"^castoff_requeue_max=", self.head, re.MULTILINE):  # it counts its requeues
                found["CASTOFF_FIRST_ATTEMPT"] = str(attempt)
        return found

    def names(self, passed: str | None, variables: Mapping[str, str]) -> str:
        """The variables that sbatch or qsub hands on: those that the script asks for, and ours.

        The run directory holds those of env_from, and the script reads them there.
        """
        asked = [name for name in (passed or "").split(",") if name not in ("", "NIL", "NONE")]
        return ",".join([*(name for name in asked if name not in self.needed), *variables])
