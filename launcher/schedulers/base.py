"""What castoff asks of a scheduler: one class for each, in the scheduler's own folder.

Whoever needs something that differs between schedulers asks the `Scheduler` that `registry` gives for a
site's or a run's name, and never compares that name. Before a submission nothing here asks the machine.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from launcher.schedulers.command import PATIENCE
from launcher.schedulers.dialect import Dialect

if TYPE_CHECKING:
    from launcher.config.job import JobSpec, StarterName
    from launcher.config.site import Site
    from launcher.runs.plan import Plan
    from launcher.schedulers.allocation import Allocation
    from launcher.schedulers.directives import Directives, Resources
    from launcher.schedulers.machine import Question, Told
    from launcher.schedulers.orders import Restart, Sending
    from launcher.schedulers.queue import Queue


class Configuration(NamedTuple):
    """What a scheduler says of itself; None where it does not."""

    cluster: str | None = None
    """Its name, where ids are its own alone."""
    largest_array: int | None = None
    """How many members an array may have."""


class Scheduler(ABC):
    """A scheduler, as far as planning and looking go; one without a queue is castoff's own."""

    name: ClassVar[str]
    """As profiles call it."""
    title: ClassVar[str]
    """As people call it."""
    starters: ClassVar[tuple[StarterName, ...]]
    """What starts ranks inside its allocations, the usual one first."""
    dialect: ClassVar[Dialect | None] = None
    """What its directives may be; None: it has none."""

    # Planning

    default_inherit: ClassVar[str] = "none"
    """What of the submitter's environment a job sees that does not say."""
    has_qos: ClassVar[bool] = False
    """Whether jobs go to a quality of service beside a queue."""
    longest_grace: ClassVar[int | None] = None
    """Seconds before the walltime in which it can send a signal at the most; None: any."""
    splits_arrays: ClassVar[bool] = False
    """Whether an array that is too large for it is sent in parts."""
    starts_again: ClassVar[bool] = True
    """Whether it starts the same job a second time; otherwise further jobs go on."""
    warns: ClassVar[bool] = False
    """Whether it signals the script in time before the walltime; otherwise that sees to it itself."""
    counts_cpus: ClassVar[bool] = False
    """Whether it counts hardware threads, and not cores."""
    lacks: ClassVar[Mapping[str, str]] = {}
    """Fields of a job that it has nothing for, each with what to do instead."""
    lacks_of_site: ClassVar[tuple[str, ...]] = ()
    """Fields of a profile that mean nothing to it."""

    def name_problem(self, name: str) -> str | None:
        """What is wrong with a job's name for this scheduler alone; None: nothing."""
        return None

    def hands_out_devices(self, site: Site) -> bool:
        """Whether a job that asks for some of a node's devices sees those alone, numbered from 0."""
        return True

    def directives(self, spec: JobSpec, site: Site, resources: Resources) -> Directives:
        """A job's directives, in the order in which a person would write them."""
        return []

    def contradictions(self, spec: JobSpec, site: Site, resources: Resources) -> Iterable[tuple[str, str]]:
        """Raw directives that contradict what was decided of devices: fields and messages."""
        return ()

    def refused(self, script: str) -> str | None:
        """Why it would not take a script as it is; None: it takes it."""
        return None

    @abstractmethod
    def found_on(self, environ: Mapping[str, str]) -> str | None:
        """Why a machine is one of this scheduler's, where nobody has said so; None: it is not."""


class QueuedScheduler(Scheduler):
    """One that takes a script, gives an id, tells states and ends jobs: other people's, with a queue."""

    interactive: ClassVar[str]
    """The command that gets a shell an allocation."""
    ids_change: ClassVar[bool] = False
    """Whether a member that goes on does so under another id."""

    # Submission

    @abstractmethod
    def check_reachable(self, environ: Mapping[str, str]) -> None:
        """Make sure that its commands are here at all.

        Raises:
            CastoffError: they are not.
        """

    @abstractmethod
    def check_run_dir(self, run_dir: str) -> None:
        """Make sure that it can be told a run directory.

        Raises:
            CastoffError: it cannot.
        """

    def configuration(self, environ: Mapping[str, str]) -> Configuration:
        """What it says of itself here; nothing where it does not answer."""
        return Configuration()

    @abstractmethod
    def first(self, plan: Plan, run_dir: str, dependency: str | None, largest: int | None) -> list[Sending]:
        """What submits a plan. `largest`: how many members an array may have; None: any number."""

    @abstractmethod
    def again(self, restart: Restart, largest: int | None) -> list[Sending]:
        """What starts members again: one command for those of each attempt, or several."""

    @abstractmethod
    def parse_submit(self, answer: str) -> str | None:
        """The job's id that its submit command prints; None if there is none."""

    def was_refused(self, code: int, words: str) -> bool:
        """Whether a submit command that failed has certainly queued nothing."""
        return True

    def forgets_dependency(self, head: str) -> bool:
        """Whether a script's own directive waits for jobs that it may have forgotten when it starts again."""
        return False

    # Questions

    @abstractmethod
    def queue(self, environ: Mapping[str, str] | None = None, patience: float = PATIENCE) -> Queue:
        """What answers about its jobs. `environ`: that of its commands (default: this process's).

        `patience`: seconds for an answer.
        """

    @abstractmethod
    def cancel_command(self, jobs: Sequence[str]) -> list[str]:
        """The command that ends jobs, whole arrays too."""

    def is_array(self, job: str, planned: int | None) -> bool:
        """Whether a job's id is an array's; `planned`: how many members were."""
        return planned is not None

    # Machines

    @property
    @abstractmethod
    def questions(self) -> Sequence[Question]:
        """What tells about its machine."""

    @abstractmethod
    def told(self, answers: Mapping[str, str]) -> Told:
        """What the answers to `questions` say.

        Raises:
            ValueError, LookupError, AttributeError, TypeError, OverflowError: they cannot be read.
        """

    # Allocations

    @abstractmethod
    def allocation(self, environ: Mapping[str, str], read_file: Callable[[str], str]) -> Allocation | None:
        """The hosts that it has given to this shell, if it has.

        Raises:
            CastoffError: the variables tell of some, but not which.
        """
