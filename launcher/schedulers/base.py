"""What castoff needs from a scheduler: the base classes that each scheduler's folder implements.

Code that depends on the scheduler asks the `Scheduler` that `registry` returns for a site's or a run's name,
and never compares that name. Planning and rendering run no command of a scheduler.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.schedulers.command import PATIENCE

if TYPE_CHECKING:
    from castoff.launcher.config.job import JobSpec
    from castoff.launcher.config.job_fields import LauncherName
    from castoff.launcher.config.site import Site
    from castoff.launcher.launchers.base import Request
    from castoff.launcher.schedulers.base_allocation import Allocation
    from castoff.launcher.schedulers.base_queue import Queue
    from castoff.launcher.schedulers.dialect import Dialect, Directives
    from castoff.launcher.schedulers.machine_info import Machine
    from castoff.launcher.schedulers.script_reader import ScriptReader
    from castoff.launcher.schedulers.submit_request import SubmitCommand, SubmitRequest


class Scheduler(ABC):
    """A scheduler as planning sees it. Only castoff's own scheduler has no queue; all others are
    `QueuedScheduler`s.
    """

    name: ClassVar[str]
    """The scheduler's name in profiles, such as `slurm`."""
    title: ClassVar[str]
    """The scheduler's name in messages, such as `Slurm`."""
    launchers: ClassVar[tuple[LauncherName, ...]]
    """The launchers that start ranks in the scheduler's allocations, the most common first."""
    dialect: ClassVar[Dialect | None] = None
    """The fields and syntax of the scheduler's directives; None: it has no directives."""

    has_queue: ClassVar[bool] = False
    """Whether the scheduler queues scripts, as a `QueuedScheduler` does."""

    # Planning

    default_inherit: ClassVar[str] = "none"
    """The default of a job's `inherit`, which decides what the job gets of the submitter's environment."""
    longest_grace: ClassVar[int | None] = None
    """The most seconds before the walltime at which the scheduler can send a signal; None: no limit."""
    splits_arrays: ClassVar[bool] = False
    """Whether castoff submits an array that exceeds the scheduler's limit in parts."""
    renumbers_arrays: ClassVar[str] = ""
    """Why `tasks` gives some arrays other indices than their members' numbers."""
    conditions: ClassVar[tuple[str, ...]] = ("after", "afterok", "afternotok", "afterany")
    """The conditions of a job's `after` that the scheduler supports."""
    requeues_in_place: ClassVar[bool] = True
    """Whether the scheduler requeues the same job; if not, castoff resumes a run by new jobs with
    other ids.
    """
    reruns_jobs: ClassVar[bool] = False
    """Whether the scheduler starts jobs again by itself after a preemption or the loss of a node."""
    reruns_arrays: ClassVar[bool] = False
    """Whether the scheduler starts arrays again by itself, even if the array does not request that."""
    reports_end_time: ClassVar[bool] = False
    """Whether a job can find out when the scheduler will end it, even if the job requests no walltime."""
    attaches_sessions: ClassVar[bool] = False
    """Whether the scheduler accounts for, limits and ends only sessions that were attached to the job."""
    shares_jobs: ClassVar[bool] = True
    """Whether members of an array can share a job."""
    counts_cpus: ClassVar[bool] = False
    """Whether the CPUs that the scheduler counts are hardware threads, not cores."""
    handles: ClassVar[frozenset[str]] = frozenset()
    """The job fields that the scheduler supports. A job is refused if it sets any other field, except fields
    that castoff itself handles (`OF_EVERY_SCRIPT`).
    """
    ignores: ClassVar[frozenset[str]] = frozenset()
    """Job fields that are accepted but have no effect, as a note of the plan says."""
    ignores_requests: ClassVar[bool] = False
    """Whether the scheduler accepts, and ignores, all fields that other schedulers' directives express."""
    handles_of_site: ClassVar[frozenset[str]] = frozenset()
    """The profile fields that the scheduler supports besides `fields.OF_SITES` and `OF_QUEUED_SITES`."""
    instead: ClassVar[Mapping[str, str]] = {}
    """What to do about a refused field, by field, if there is better advice than to drop it."""

    def name_problem(self, name: str) -> str | None:
        """Return why a job's name is invalid for this scheduler; None: the name is valid."""
        return None

    def hands_out_devices(self, site: Site) -> bool:
        """Whether a job that requests some of a node's devices sees only those devices, numbered from 0."""
        return True

    def tasks(self, members: Sequence[int]) -> Sequence[int]:
        """Return the scheduler's array indices of `members`, which are all members of an array."""
        return members

    def directives(self, spec: JobSpec, site: Site, request: Request) -> Directives:
        """Return a job's directives, in the order in which a person would write them."""
        # Imported late, since `castoff launch` needs no directives.
        from castoff.launcher.schedulers.dialect import layered
        from castoff.launcher.schedulers.table import Job

        return layered(self.dialect, Job(spec, site, request)) if self.dialect else []

    def contradictions(self, spec: JobSpec, site: Site, request: Request) -> Iterable[tuple[str, str]]:
        """Yield raw directives that contradict what the job asks for: fields and messages."""
        return ()

    def refused(self, script: str) -> str | None:
        """Return why the scheduler would not accept a script; None: the scheduler would."""
        return None

    @abstractmethod
    def found_on(self, environ: Mapping[str, str]) -> str | None:
        """Return the evidence that this machine runs the scheduler, such as a command on PATH; None: there is
        none.
        """


class QueuedScheduler(Scheduler):
    """A scheduler with a queue, which accepts scripts, returns job ids, reports states and ends jobs."""

    has_queue = True
    interactive: ClassVar[str]
    """The command that opens a shell in an allocation."""
    submit_command: ClassVar[Sequence[str]]
    """The command that submits a script."""
    trial_command: ClassVar[Sequence[str]] = ()
    """The command that reports whether a script would be accepted, and queues nothing; empty: there is
    none.
    """
    directive_mark: ClassVar[str]
    """The beginning of a directive's line in a script, such as `#SBATCH `."""
    waits_for_requeued: ClassVar[bool] = False
    """Whether a job that depends on the success of a job waits while that job is requeued under the same id.
    """
    excludes_hosts: ClassVar[bool] = False
    """Whether the submit command takes a list of hosts to avoid."""
    plain_ids: ClassVar[bool] = False
    """Whether job ids are plain numbers, which a wrapper of the submit command may print for other
    reasons.
    """
    unreached: ClassVar[re.Pattern[str]]
    """Matches the submit command's message if it reached no scheduler."""
    no_answer: ClassVar[re.Pattern[str]]
    """Matches the submit command's message if the job may have been queued despite the failure."""
    remedies: ClassVar[Mapping[str, str]] = {}
    """What to do about refusals: patterns for the submit command's message, each with advice that may contain
    the pattern's group.
    """
    remote_shell: ClassVar[str] = ""
    """The scheduler's command that runs another command on a host of a job; empty: there is none."""
    remote_setup: ClassVar[Sequence[str]] = ()
    """Setup lines that make mpiexec reach other hosts through `remote_shell`."""
    forbidden_path_patterns: ClassVar[Mapping[str, str]]
    """Patterns that a run directory's path must not match, each with the reason."""

    # Submission

    def check_reachable(self, environ: Mapping[str, str]) -> None:
        """Check that the submit command is on PATH.

        Raises:
            CastoffError: the submit command is not on PATH.
        """
        program = self.submit_command[0]
        import shutil

        if shutil.which(program, path=environ.get("PATH")) is None:
            raise CastoffError(
                f"{program} is not on PATH here: submit where the scheduler's commands are, as on a login "
                "node; `castoff render` needs none; `castoff render JOB.yaml | ssh LOGIN_NODE "
                f"{' '.join(self.submit_command)}` sends it there"
            )

    def check_run_dir(self, run_dir: str) -> None:
        """Check that the scheduler can handle a run directory's path.

        Raises:
            CastoffError: the scheduler cannot handle the path.
        """
        for pattern, reason in self.forbidden_path_patterns.items():
            if re.search(pattern, run_dir):
                fix = "choose another folder with --runs-dir or CASTOFF_RUNS_DIR"
                raise CastoffError(f"{printable(run_dir)}: {reason}; {fix}")

    @abstractmethod
    def submit_commands(self, request: SubmitRequest, largest: int | None) -> list[SubmitCommand]:
        """Return the commands that submit a run: one, or one for each part of the run, grouped by attempt.

        `largest`: the most members that an array may have; None: no limit.
        """

    def parse_submit(self, *answers: str) -> str | None:
        """Return the job id in the first answer that contains any; None if no answer does, or that one
        contains several.
        """
        for answer in answers:
            jobs = {job for line in answer.splitlines() if (job := self.printed_job(line.strip()))}
            if jobs:
                return jobs.pop() if len(jobs) == 1 else None
        return None

    @abstractmethod
    def printed_job(self, line: str) -> str | None:
        """Return the job id that a line of the submit command's output reports; None: the line
        reports no id.
        """

    def was_refused(self, code: int, words: str) -> bool:
        """Whether a failed submit command's message shows that nothing was queued, because the scheduler
        refused the script or was not reached.
        """
        return code > 0 and bool(words.strip()) and self.no_answer.search(words) is None

    def remedy(self, words: str) -> str:
        """Return what to do about a refusal with this message; empty: there is no advice beyond the
        message.
        """
        matches = ((re.search(pattern, words), text) for pattern, text in self.remedies.items())
        return next((text.format(printable(match.group(1))) for match, text in matches if match), "")

    # Questions

    @abstractmethod
    def queue(self, environ: Mapping[str, str] | None = None, patience: float = PATIENCE) -> Queue:
        """Return the scheduler's queue. `environ`: for its commands (default: this process's).

        `patience`: seconds to wait for an answer.
        """

    @abstractmethod
    def script_reader(self) -> ScriptReader:
        """Return the reader of this scheduler's scripts that castoff has not written."""

    @abstractmethod
    def machine(self) -> Machine:
        """Return the questions about the scheduler's machine, with the parser of the answers."""

    def is_array(self, job: str, planned: int | None) -> bool:
        """Whether a job id belongs to an array. `planned`: the number of members in the plan; None:
        no array.
        """
        return planned is not None

    # Interactive allocations

    interactive_prompt: ClassVar[tuple[bytes, bytes] | None] = None
    """The question of the allocation command if it is interrupted while it waits, and the answer that
    withdraws the request; such a command needs a terminal. None: the command withdraws without a question.
    """

    @abstractmethod
    def interactive_command(
        self,
        directives: Directives,
        program: list[str],
        terminal: bool,
    ) -> list[str]:
        """Return the command that requests an allocation, waits for it, and runs a program on its first host.

        `terminal`: whether the program gets this process's terminal.
        """

    # Programs in a running job

    @abstractmethod
    def beside_command(
        self,
        job: str,
        hosts: Sequence[str],
        number: int,
        program: list[str],
        terminal: bool,
        environ: Mapping[str, str],
    ) -> list[str]:
        """Return the command that runs a program on a host of this user's running job and exits with its
        code.

        `number`: the host's index in `hosts`. `terminal`: whether the program gets a terminal.

        Raises:
            CastoffError: this host cannot run a program there.
        """

    # Allocations

    def allocation(self, environ: Mapping[str, str], read_file: Callable[[str], str]) -> Allocation | None:
        """Return the allocation that this shell is in; None if the shell is not in an allocation.

        Raises:
            CastoffError: the variables show an allocation, but not the allocation's hosts.
        """
        return None
