"""The commands that submit a run's script, for the first time or again: one command, or one for each part."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import msgspec

from castoff.launcher.config.array_indices import index_list
from castoff.launcher.runs.records import Facts, Sharing
from castoff.launcher.runs.script import directives_of


class Part(msgspec.Struct, frozen=True):
    """The members of an array that one job of the scheduler contains."""

    members: Sequence[int]
    """The members' numbers, in ascending order."""
    offset: int = 0
    """The difference between a member's number and its index in the scheduler's array."""
    tasks: Sequence[int] | None = None
    """The scheduler's indices of the members; None: the members' numbers minus `offset`."""
    one_job: bool = False
    """Whether the members share a job that is not an array."""

    @property
    def indices(self) -> str:
        """The scheduler's indices, such as `0-7` or `2,5`."""
        return index_list(self.tasks or [member - self.offset for member in self.members])


class SubmitCommand(msgspec.Struct, frozen=True):
    """One command that submits a run's script, or starts members of the run again."""

    environment: dict[str, str]
    """Variables that the command passes on by name, since sbatch and qsub would split a value at a comma."""
    argv: Callable[[str | None], list[str]]
    """Returns the command line, given the id of the previous job, for which this job may have to wait."""
    part: Part | None = None
    """The part of the array; None: the run is not an array."""
    link: int | None = None
    """The job's number in its chain; None: it is not in a chain."""


class SubmitRequest(msgspec.Struct, frozen=True):
    """A run's script, to be submitted for the first time or again."""

    head: str
    """The script's head, with its directives."""
    run_dir: str
    begin: Mapping[int, int]
    """The members to start, each with the number of the attempt."""
    dependency: str | None = None
    """The dependency in the scheduler's syntax. Empty: none. None: the script's own directive applies."""
    chain: int = 0
    """The number of jobs in a chain, which are submitted together, and of which each resumes the previous
    one; 0: no chain.
    """
    resubmits: bool = False
    """Whether the run was submitted before."""
    needed: Sequence[str] = ()
    """The names of the variables in `env_from`."""
    members: Sequence[int] = ()
    """All members of the run; empty: their numbers are the scheduler's indices."""
    excluded: Sequence[str] = ()
    """Hosts to avoid, in addition to hosts that a directive of the script names."""
    sharing: Sharing | None = None
    """How members share jobs: then `begin` counts jobs instead of members."""
    sharers: Sequence[int] = ()
    """The members that share the jobs, in the order of the jobs."""
    sharers_file: str | None = None
    """The file in the run directory that lists `sharers`; None: they are all of the run's members."""

    @classmethod
    def of(
        cls,
        planned: Facts,
        head: str,
        run_dir: str,
        dependency: str | None,
        begin: Mapping[int, int] | None = None,
    ) -> SubmitRequest:
        """Make the first request for a planned script; or, with `begin`, the request to start a run's members
        again.
        """
        chain = 1 + planned.requeue_max if planned.requeue_how == "chain" else 0
        first, of_all = dict.fromkeys(planned.members, 0), planned.members
        resubmits = begin is not None
        if planned.sharing is not None:
            sharers = [*(begin or first)]
            return cls(
                head,
                run_dir,
                dict.fromkeys(range(planned.sharing.jobs(len(sharers))), 0),
                dependency,
                needed=planned.env_from,
                sharing=planned.sharing,
                sharers=sharers,
            )
        return cls(head, run_dir, begin or first, dependency, chain, resubmits, planned.env_from, of_all)

    @property
    def log(self) -> str:
        """The first part of the name of a job's log."""
        return "shared" if self.sharing else "job"

    def with_members(self, commands: list[SubmitCommand]) -> list[SubmitCommand]:
        """Return the scheduler's commands for this request, each with the members that share its jobs."""
        if self.sharing is None:
            return commands
        return [self._of_sharers(command, self.sharing.members) for command in commands]

    def _of_sharers(self, command: SubmitCommand, each: int) -> SubmitCommand:
        """Return a command whose part has the members that share its jobs."""
        part = command.part
        jobs = part.members if part else [0]
        tasks = (part.tasks or [job - part.offset for job in jobs]) if part else jobs
        shared = [
            (member, task)
            for job, task in zip(jobs, tasks, strict=True)
            for member in self.sharers[job * each : (job + 1) * each]
        ]
        members, of_jobs = zip(*shared, strict=True)
        whole = Part(members, tasks=of_jobs, one_job=part is None)
        return msgspec.structs.replace(command, part=whole)

    @property
    def links(self) -> Sequence[int | None]:
        """The numbers of a chain's jobs; a single None if there is no chain."""
        return range(self.chain) if self.chain else [None]

    def dependency_of(self, link: int | None, before: str | None) -> str | None:
        """Return a job's dependency: within a chain, on the previous job `before`, which must have stopped
        early.
        """
        return f"afternotok:{before}" if before and link else self.dependency

    def directive(self, prefix: str) -> str | None:
        """Return the value of the directive with this prefix, as `#SBATCH --export=`; None: there is none."""
        match = re.search(f"^{re.escape(prefix)}(.*)$", directives_of(self.head), re.MULTILINE)
        return match.group(1).strip("\"'") if match else None

    @property
    def keeps_output(self) -> bool:
        """Whether the job's output stays where the scheduler puts it, as for a batch script."""
        return re.search(r"^castoff_run_script ", self.head, re.MULTILINE) is not None

    def variables(self, attempt: int, part: Part | None = None, link: int | None = None) -> dict[str, str]:
        """Return the variables that tell a script its run directory, and which part and attempt of the run it
        is.
        """
        variables = {"CASTOFF_RUN_DIR": self.run_dir}
        if part and part.offset:
            variables["CASTOFF_ARRAY_OFFSET"] = str(part.offset)
        if link is not None:
            variables["CASTOFF_CHAIN"] = str(link)
        if self.sharers_file is not None:
            variables["CASTOFF_MEMBERS"] = self.sharers_file
        if self.resubmits:
            variables["CASTOFF_ATTEMPT"] = str(attempt)
            if re.search(r"^castoff_requeue_max=", self.head, re.MULTILINE):  # the script counts its requeues
                variables["CASTOFF_FIRST_ATTEMPT"] = str(attempt)
        return variables

    def names(self, passed: str | None, variables: Mapping[str, str]) -> str:
        """Return the names of the variables that sbatch or qsub passes on: the script's, and castoff's
        `variables`.

        The variables of `env_from` are left out: the script reads them in its run directory.
        """
        exported = [name for name in (passed or "").split(",") if name not in ("", "NIL", "NONE")]
        return ",".join([*(name for name in exported if name not in self.needed), *variables])
