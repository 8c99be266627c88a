"""What castoff asks of a scheduler: one class for each, in the scheduler's own folder.

Whoever needs something that differs between schedulers asks the `Scheduler` that `registry` gives for a
site's or a run's name, and never compares that name. Before a submission nothing here asks the machine.
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
    """A scheduler, as far as planning and looking go; one without a queue is castoff's own."""

    name: ClassVar[str]
    """As profiles call it."""
    title: ClassVar[str]
    """As people call it."""
    launchers: ClassVar[tuple[LauncherName, ...]]
    """What starts ranks inside its allocations, the usual one first."""
    dialect: ClassVar[Dialect | None] = None
    """Its directives; None: it has none."""

    has_queue: ClassVar[bool] = False
    """Whether it takes scripts, as a `QueuedScheduler` does."""

    # Planning

    default_inherit: ClassVar[str] = "none"
    """What of the submitter's environment a job sees that does not say."""
    longest_grace: ClassVar[int | None] = None
    """Seconds before the walltime in which it can send a signal at the most; None: any."""
    splits_arrays: ClassVar[bool] = False
    """Whether an array that is too large for it is sent in parts."""
    requeues_in_place: ClassVar[bool] = True
    """Whether it requeues the same job; otherwise further jobs, with their own ids, resume the run."""
    reruns_jobs: ClassVar[bool] = False
    """Whether it starts a job again by itself after a preemption or the loss of a node."""
    reruns_arrays: ClassVar[bool] = False
    """Whether it does so with every array, though no job asks for it."""
    reports_end_time: ClassVar[bool] = False
    """Whether it reports in the job when that will be ended, also where the job asks for no walltime."""
    attaches_sessions: ClassVar[bool] = False
    """Whether it counts, limits and ends only those sessions on a host that were reported to it."""
    counts_cpus: ClassVar[bool] = False
    """Whether it counts hardware threads, and not cores."""
    handles: ClassVar[frozenset[str]] = frozenset()
    """Fields of a job that reach it: a job that sets another one, which castoff does not handle by itself
    (`OF_EVERY_SCRIPT`), is refused."""
    ignores: ClassVar[frozenset[str]] = frozenset()
    """Fields that a job may set all the same, and that have no effect: the plan says so."""
    ignores_requests: ClassVar[bool] = False
    """Whether it ignores every field that another scheduler's directives say."""
    handles_of_site: ClassVar[frozenset[str]] = frozenset()
    """The same of a profile's fields, beside `fields.OF_SITES` and `OF_QUEUED_SITES`."""
    instead: ClassVar[Mapping[str, str]] = {}
    """What to do in place of a field that is refused, where dropping it is not all."""

    def name_problem(self, name: str) -> str | None:
        """What is wrong with a job's name for this scheduler alone; None: nothing."""
        return None

    def hands_out_devices(self, site: Site) -> bool:
        """Whether a job that asks for some of a node's devices sees those alone, numbered from 0."""
        return True

    def tasks(self, members: Sequence[int]) -> Sequence[int]:
        """The indices that it gives these members of an array, which are all that there are."""
        return members

    def directives(self, spec: JobSpec, site: Site, request: Request) -> Directives:
        """A job's directives, in the order in which a person would write them."""
        from castoff.launcher.schedulers.dialect import layered  # late: launch needs none of it
        from castoff.launcher.schedulers.table import Job

        return layered(self.dialect, Job(spec, site, request)) if self.dialect else []

    def contradictions(self, spec: JobSpec, site: Site, request: Request) -> Iterable[tuple[str, str]]:
        """Raw directives that contradict what the job asks for: fields and messages."""
        return ()

    def refused(self, script: str) -> str | None:
        """Why it would not take a script as it is; None: it takes it."""
        return None

    @abstractmethod
    def found_on(self, environ: Mapping[str, str]) -> str | None:
        """Why a machine is one of this scheduler's, where nobody has said so; None: it is not."""


class QueuedScheduler(Scheduler):
    """One with a queue: it takes a script, returns an id, reports states and ends jobs."""

    has_queue = True
    interactive: ClassVar[str]
    """The command that gets a shell an allocation."""
    submit_command: ClassVar[Sequence[str]]
    """The command that submits."""
    trial_command: ClassVar[Sequence[str]] = ()
    """The command that says whether a script would be taken, and queues nothing; empty: there is none."""
    directive_mark: ClassVar[str]
    """What a directive's line in a script begins with."""
    excludes_hosts: ClassVar[bool] = False
    """Whether its submit command can be given hosts to keep out of."""
    plain_ids: ClassVar[bool] = False
    """Whether its ids are mere numbers, which something round its submit command may print as well."""
    unreached: ClassVar[re.Pattern[str]]
    """What the submit command says where it has reached no scheduler."""
    no_answer: ClassVar[re.Pattern[str]]
    """What the submit command says where a job may have been taken all the same."""
    remedies: ClassVar[Mapping[str, str]] = {}
    """What to do about a refusal: patterns of the submit command's words, and sentences with their group."""
    remote_shell: ClassVar[str] = ""
    """Its own command that runs another on a host of a job; empty: it has none."""
    remote_setup: ClassVar[Sequence[str]] = ()
    """Lines of a job's setup that have mpiexec reach other hosts by that."""
    forbidden_path_patterns: ClassVar[Mapping[str, str]]
    """Patterns that a run directory's path must not match, each with the reason."""

    # Submission

    def check_reachable(self, environ: Mapping[str, str]) -> None:
        """Make sure that its commands are here at all.

        Raises:
            CastoffError: they are not.
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
        """Make sure that it accepts a run directory's path.

        Raises:
            CastoffError: it cannot.
        """
        for pattern, why in self.forbidden_path_patterns.items():
            if re.search(pattern, run_dir):
                raise CastoffError(
                    f"{printable(run_dir)}: {why}; choose another folder with --runs-dir or CASTOFF_RUNS_DIR"
                )

    @abstractmethod
    def submit_commands(self, request: SubmitRequest, largest: int | None) -> list[SubmitCommand]:
        """What submits a run: one command, or one for each part of it, with those of each attempt together.

        `largest`: how many members an array may have; None: any number.
        """

    def parse_submit(self, *answers: str) -> str | None:
        """The job's id in the first of these texts that holds any; None if there is none, or several."""
        for answer in answers:
            found = {job for line in answer.splitlines() if (job := self.printed_job(line.strip()))}
            if found:
                return found.pop() if len(found) == 1 else None
        return None

    @abstractmethod
    def printed_job(self, line: str) -> str | None:
        """The id of which a line of the submit command's tells, and of nothing else."""

    def was_refused(self, code: int, words: str) -> bool:
        """Whether a submit command that failed says that nothing was queued: refused, or never reached."""
        return code > 0 and bool(words.strip()) and self.no_answer.search(words) is None

    def remedy(self, words: str) -> str:
        """What to do about a refusal in these words; empty: they say it themselves."""
        found = ((re.search(pattern, words), text) for pattern, text in self.remedies.items())
        return next((text.format(printable(match.group(1))) for match, text in found if match), "")

    # Questions

    @abstractmethod
    def queue(self, environ: Mapping[str, str] | None = None, patience: float = PATIENCE) -> Queue:
        """What answers about its jobs. `environ`: that of its commands (default: this process's).

        `patience`: seconds for an answer.
        """

    @abstractmethod
    def script_reader(self) -> ScriptReader:
        """How scripts for it are read that castoff has not written."""

    @abstractmethod
    def machine(self) -> Machine:
        """How it is asked about its machine."""

    def is_array(self, job: str, planned: int | None) -> bool:
        """Whether a job's id is an array's; `planned`: how many members were."""
        return planned is not None

    # Interactive allocations

    interactive_prompt: ClassVar[tuple[bytes, bytes] | None] = None
    """What its command for an allocation asks when it is interrupted while it waits, and the answer that
    withdraws the request; such a command needs a terminal. None: it withdraws it without asking."""

    @abstractmethod
    def interactive_command(
        self,
        directives: Directives,
        program: list[str],
        terminal: bool,
    ) -> list[str]:
        """What asks for an allocation, waits for it, and runs a program on its first host.

        `terminal`: whether ours is its terminal.
        """

    # Beside a running job

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
        """What runs a program on a host of a running job of this user's, and exits with its code.

        `number`: which of its hosts. `terminal`: whether the program is to have one, as ours is.

        Raises:
            CastoffError: it can not from here.
        """

    # Allocations

    def allocation(self, environ: Mapping[str, str], read_file: Callable[[str], str]) -> Allocation | None:
        """The hosts that it has given to this shell, if it gives any to shells.

        Raises:
            CastoffError: the variables show that there are some, but not which.
        """
        return None
