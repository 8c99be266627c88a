"""PBS as castoff uses it: how to call qsub, and how to read its answers (qsub(1B) of OpenPBS)."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from castoff.launcher.config.array_indices import runs
from castoff.launcher.config.site import Site
from castoff.launcher.errors import CastoffError, shown
from castoff.launcher.schedulers.base import QueuedScheduler
from castoff.launcher.schedulers.command import PATIENCE, version_of
from castoff.launcher.schedulers.pbs import NAME, TITLE
from castoff.launcher.schedulers.pbs import qsub_directives as directives
from castoff.launcher.schedulers.submit_request import Part, SubmitCommand, SubmitRequest
from castoff.launcher.schedulers.table import OF_SHARED_JOBS, reached

if TYPE_CHECKING:
    from castoff.launcher.schedulers.base_allocation import Allocation
    from castoff.launcher.schedulers.base_queue import Queue
    from castoff.launcher.schedulers.dialect import Directives
    from castoff.launcher.schedulers.machine_info import Machine
    from castoff.launcher.schedulers.script_reader import ScriptReader

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]{0,199}")
"""Job names that OpenPBS's check_job_name() accepts for -N: a letter, then letters, digits and -_.+. PBS
accepts 230 characters, but the name is also a part of file names.
"""


_OF_BATCH = frozenset({"j", "o", "e", "k", "r", "J", "S", "z", "f"})
"""Directives that an interactive job cannot have, or that have no meaning for it."""

_ID = re.compile(r"[0-9]+(?:\[\])?\.[A-Za-z0-9][A-Za-z0-9_.-]*")


_REMOTE_SETUP = (
    "castoff_reach=$CASTOFF_ATTEMPT_DIR/reach  # what ssh would do, by PBS",
    "printf '%s\\n' '#!/bin/bash' 'while [[ $1 == -* ]]; do shift; done' 'host=$1' shift \\",
    """  'exec REMOTE_SHELL "$host" /bin/bash -c "$*"' >"$castoff_reach\"""",
    'chmod 700 "$castoff_reach"',
    "export HYDRA_LAUNCHER=ssh HYDRA_LAUNCHER_EXEC=$castoff_reach OMPI_MCA_plm_rsh_agent=$castoff_reach",
    "export I_MPI_HYDRA_BOOTSTRAP=ssh I_MPI_HYDRA_BOOTSTRAP_EXEC=$castoff_reach",
)
"""Setup lines that make mpiexec reach other hosts through `remote_shell`."""


class Pbs(QueuedScheduler):
    """OpenPBS and PBS Pro; tested with 23.06 and later."""

    name = NAME
    title = TITLE
    launchers = ("pals", "hydra", "intelmpi", "openmpi")
    dialect = directives.DIALECT
    renumbers_arrays = "it takes only one range"
    requeues_in_place = False
    reruns_jobs = True
    reruns_arrays = True
    interactive = "qsub -I"
    interactive_prompt = (b"(y|[n])?", b"y\n")
    submit_command = ("qsub",)
    directive_mark = "#PBS "
    attaches_sessions = True
    # prepare_path() in src/lib/Libcmds.
    forbidden_path_patterns: ClassVar[Mapping[str, str]] = {
        "[^ -~]": "qsub's -o takes a path of plain ASCII",
        r"\\": "qsub -v doubles a backslash",
    }
    handles = reached(directives.FIELDS) | {"requeue.how", *OF_SHARED_JOBS}
    handles_of_site = frozenset(
        {
            *(
                "request_form",
                "requested_resources",
                "queues.array_max_concurrent",
                "queues.select_counts",
                "array.source",
                "array.date",
                "array.max_count",
                "device_type_resource",
            ),
        }
    )
    instead: ClassVar[Mapping[str, str]] = {
        "qos": "drop it, or use a queue that implies it",
        "constraint": "write select, as in select: {model: NAME}, or use a queue of such nodes",
        "exclude": "drop it; PBS has no such request",
        "reservation": "drop it and give its name as queue, for a reservation is one there",
    }
    unreached = re.compile(r"cannot connect to server|connection refused", re.IGNORECASE)
    no_answer = re.compile(  # pbs_messages.c
        r"timed? ?out|end of file|premature|protocol|no reply|connection reset|broken pipe|server shutting "
        r"down",
        re.IGNORECASE,
    )
    remote_shell = "pbs_tmrsh"
    remote_setup = _REMOTE_SETUP
    tasks = staticmethod(directives.tasks)
    remedies: ClassVar[Mapping[str, str]] = {
        r'cannot be used with "select" or "place", resource is: (\S+)': (
            "{0} is a resource of chunks: write it under select, not under directives"
        ),
        r'Resource invalid in "select" specification: (\S+)': (
            "{0} is a resource of the whole job: write it under directives, not under select"
        ),
    }
    contradictions = staticmethod(directives.contradictions)
    directives = staticmethod(directives.directives)

    def name_problem(self, name: str) -> str | None:
        """See `Scheduler.name_problem`; checks what -N takes."""
        if _NAME.fullmatch(name):
            return None
        rule = "starts with a letter and holds letters, digits, - _ . and +, 200 at the most"
        return f"is {shown(name)}, but a PBS job's name {rule}"

    def hands_out_devices(self, site: Site) -> bool:
        """See `Scheduler.hands_out_devices`: only if chunks request ngpus."""
        return "ngpus" in site.requested_resources

    def found_on(self, environ: Mapping[str, str]) -> str | None:
        """See `Scheduler.found_on`. Slurm's and Grid Engine's qsub have the same name, but print another
        version text.
        """

        qsub = shutil.which("qsub", path=environ.get("PATH", ""))
        if qsub is None or "pbs" not in version_of(qsub, environ):
            return None
        return f"{qsub} is on PATH and is PBS's"

    def check_reachable(self, environ: Mapping[str, str]) -> None:
        """Check that a qsub is on PATH, and that this qsub is not Slurm's."""
        super().check_reachable(environ)

        qsub = shutil.which("qsub", path=environ.get("PATH"))
        if qsub and _is_slurms_own(qsub):
            raise CastoffError(
                f"{qsub} is not PBS's, but Slurm's substitute (slurm-wlm-torque): choose a Slurm site with "
                "--site, or put PBS's commands first on PATH"
            )

    def submit_commands(self, request: SubmitRequest, largest: int | None) -> list[SubmitCommand]:
        """Return the qsub commands: one for each job of a chain, or for each range of members with the same
        attempt.
        """
        array, passed = request.directive("#PBS -J "), request.directive("#PBS -v ")
        whole, limit, max_concurrent = (array or "").partition("%")
        tasks = {member: member for member in request.begin}
        tasks |= zip(request.members, self.tasks(request.members), strict=True)
        own = all(member == task for member, task in tasks.items())
        # If PBS's index differs from the member's number, the script itself writes to the member's log.
        name = request.log
        log = f"{name}-0" if array is None else f"{name if own else 'pbs'}-^array_index^"
        commands = []
        for members in _spans(request.begin, tasks):
            for link in request.links:
                environment = request.variables(request.begin[members[0]], link=link)
                environment["CASTOFF_RUN_DIR"] = _for_qsub(request.run_dir)
                names = request.names(passed, environment)
                output = [] if request.keeps_output else ["-o", f"{request.run_dir}/logs/{log}.log"]
                words = [*output, "-v", names]
                indices = [tasks[member] for member in members]
                part = None if array is None else Part(members, tasks=None if own else indices)
                if part and directives.one_range(indices) != whole:
                    most = f"{limit}{max_concurrent}" if len(indices) > 1 else ""
                    words += ["-J", f"{directives.one_range(indices)}{most}"]
                commands.append(
                    SubmitCommand(environment, partial(_command, words, request, link), part, link)
                )
        return commands

    def printed_job(self, line: str) -> str | None:
        """Read an id such as `3.head` or `7[].head`."""
        return line if _ID.fullmatch(line) else None

    def is_array(self, job: str, planned: int | None) -> bool:
        """See `QueuedScheduler.is_array`; PBS has no arrays of one member."""
        return "[" in job

    def script_reader(self) -> ScriptReader:
        """See `QueuedScheduler.script_reader`."""
        from castoff.launcher.schedulers.pbs.qsub_scripts import READER

        return READER

    def machine(self) -> Machine:
        """See `QueuedScheduler.machine`."""
        from castoff.launcher.schedulers.pbs.queues_and_nodes import MACHINE

        return MACHINE

    def queue(self, environ: Mapping[str, str] | None = None, patience: float = PATIENCE) -> Queue:
        """See `QueuedScheduler.queue`; imported late, since plans and scripts need no queue."""
        from castoff.launcher.schedulers.pbs.queue import PbsQueue

        return PbsQueue(environ, patience)

    def interactive_command(self, directives: Directives, program: list[str], terminal: bool) -> list[str]:
        """Return a qsub -I command. The program starts as a login shell, since it does not inherit this
        environment.
        """
        from castoff.launcher.schedulers.pbs.qsub_directives import option

        options = [
            word for directive in directives if directive[0] not in _OF_BATCH for word in option(*directive)
        ]
        shell, *words = program
        login = [] if "-l" in words or "--login" in words else ["-l"]
        return ["qsub", "-I", *options, "--", shell, *login, *words]

    def beside_command(
        self,
        job: str,
        hosts: Sequence[str],
        number: int,
        program: list[str],
        terminal: bool,
        environ: Mapping[str, str],
    ) -> list[str]:
        """Return an ssh command; within the job itself, a pbs_tmrsh command."""
        from castoff.launcher.schedulers.pbs.allocation import beside_command

        return beside_command(job, hosts[number], program, terminal, environ)

    def allocation(self, environ: Mapping[str, str], read_file: Callable[[str], str]) -> Allocation | None:
        """See `QueuedScheduler.allocation`; uses PBS's variables."""
        from castoff.launcher.schedulers.pbs.allocation import find

        return find(environ, read_file)


def _for_qsub(path: str) -> str:
    """Encode a path for qsub -v, which cannot pass on quotes; the script decodes it."""
    if not re.search("['\"]", path):
        return path
    return "%" + path.replace("%", "%25").replace("'", "%27").replace('"', "%22")


def _is_slurms_own(qsub: str) -> bool:
    """Whether a command is one of Debian's slurm-wlm-torque, which are written in Perl."""
    with contextlib.suppress(OSError), Path(qsub).open("rb") as file:
        return b"\nuse Slurm" in file.read(16384)
    return False


def _command(words: list[str], request: SubmitRequest, link: int | None, before: str | None) -> list[str]:
    """Return the qsub command. The options -o and -v replace those of the script's directives.

    -f keeps qsub in the foreground: otherwise qsub leaves a process behind that serves later calls, and would
    hold the run's lock for a minute (qsub(1B)).
    """
    dependency = request.dependency_of(link, before)
    wait_option = ["-W", f"depend={dependency}"] if dependency else []
    return ["qsub", "-f", *words, *wait_option, f"{request.run_dir}/job.sh"]


def _spans(begin: Mapping[int, int], tasks: Mapping[int, int]) -> list[list[int]]:
    """Group members that have the same attempt and whose indices form one range, since qsub takes only one
    range.
    """
    spans = []
    for attempt in {*begin.values()}:
        members = sorted(member for member, first in begin.items() if first == attempt)
        by_task = {tasks[member]: member for member in members}
        indices = [*by_task]
        whole = len({after - before for before, after in pairwise(indices)}) < 2
        spans += [[by_task[index] for index in run] for run in ([indices] if whole else runs(indices))]
    return sorted(spans)


SCHEDULER = Pbs()
