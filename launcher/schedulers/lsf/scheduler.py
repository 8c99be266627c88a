"""LSF, as the rest of castoff sees it, how bsub is called, and what it answers.

IBM Spectrum LSF 10.1 by its manuals, and OpenLava 2.2 as far as both are alike.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from castoff.launcher.errors import shown
from castoff.launcher.runs.script import directives_of
from castoff.launcher.schedulers.base import QueuedScheduler
from castoff.launcher.schedulers.command import PATIENCE, ssh_command
from castoff.launcher.schedulers.lsf import NAME, TITLE
from castoff.launcher.schedulers.lsf import bsub_directives as directives
from castoff.launcher.schedulers.submit_request import Part, SubmitCommand, SubmitRequest
from castoff.launcher.schedulers.table import reached

if TYPE_CHECKING:
    from castoff.launcher.schedulers.base_allocation import Allocation
    from castoff.launcher.schedulers.base_queue import Queue
    from castoff.launcher.schedulers.dialect import Directives
    from castoff.launcher.schedulers.machine_info import Machine
    from castoff.launcher.schedulers.script_reader import ScriptReader

_OF_BATCH = frozenset({"o", "oo", "e", "eo", "env", "J", "w", "r", "rn"})
"""Directives that mean nothing to a shell."""


class Lsf(QueuedScheduler):
    """https://www.ibm.com/docs/en/spectrum-lsf."""

    name = NAME
    title = TITLE
    launchers = ("hydra", "intelmpi", "openmpi")
    dialect = directives.DIALECT
    reruns_jobs = True
    excludes_hosts = True
    shares_jobs = False
    renumbers_arrays = "it counts from 1"
    interactive = "bsub -Is"
    submit_command = ("bsub",)
    directive_mark = "#BSUB "
    forbidden_path_patterns: ClassVar[Mapping[str, str]] = {
        r"[^\w@+=:,./-]|%": "bsub hands its command to a shell, and replaces % in -o",
    }
    handles = reached(directives.FIELDS)
    handles_of_site = frozenset(
        {"array.source", "array.date", "array.max_count", "queues.array_max_concurrent"}
    )
    instead: ClassVar[Mapping[str, str]] = {
        "requeue.how": "drop it, for LSF starts the same job again",
        "nice": "write directives: {sp: 50}, a priority of your jobs among each other",
        "qos": "use a queue that implies it, or write directives: {sla: NAME}",
        "select": "write constraint, as in constraint: 'type==any && bigmem'",
        "restart.spare_nodes": "drop it; LSF ends a job whose host is lost",
    }
    unreached = re.compile(r"LSF is down|cannot connect|connection refused", re.IGNORECASE)
    no_answer = re.compile(
        r"time[d -]*out|not responding|communication|connection reset|broken pipe|protocol", re.IGNORECASE
    )
    tasks = staticmethod(directives.tasks)

    def name_problem(self, name: str) -> str | None:
        """What is wrong with a job's name, or None: `bsub -J` reads brackets as array indices, and `-w`
        reads a name that begins with a digit as a job id.
        """
        if re.fullmatch(r"[A-Za-z_][\w.+ -]*", name, re.ASCII):
            return None
        return (
            f"is {shown(name)}, but an LSF job's name starts with a letter and holds letters, digits, - _ . +"
        )

    def found_on(self, environ: Mapping[str, str]) -> str | None:
        """bsub is LSF's alone."""
        bsub = shutil.which("bsub", path=environ.get("PATH", ""))
        return bsub and f"{bsub} is on PATH"

    def submit_commands(self, request: SubmitRequest, largest: int | None) -> list[SubmitCommand]:
        """bsub, once for each attempt of an array's members."""
        tasks = (
            dict(zip(request.members, self.tasks(request.members), strict=True)) if request.members else {}
        )
        array = re.fullmatch(r"(.+)\[(.+)\](%\d+)?", request.directive("#BSUB -J ") or "")
        found = []
        for attempt in sorted({*request.begin.values()}):
            members = sorted(member for member, begun in request.begin.items() if begun == attempt)
            indices = [tasks.get(member, member) for member in members]
            part = Part(members, tasks=None if indices == members else indices) if array else None
            name = f"{array[1]}[{part.indices}]{array[3] or ''}" if array and part else None
            environment = request.variables(attempt, part)
            found.append(SubmitCommand(environment, partial(_command, request, name, environment), part))
        return found

    def printed_job(self, line: str) -> str | None:
        """`Job <7> is submitted to queue <normal>.`"""
        found = re.fullmatch(r"Job <(\d+)> is submitted to .*queue <.+>\.", line)
        return found and found[1]

    def interactive_command(self, directives: Directives, program: list[str], terminal: bool) -> list[str]:
        """bsub -Is, whose environment is ours."""
        from castoff.launcher.schedulers.lsf.bsub_directives import option

        words = [word for one in directives if one[0] not in _OF_BATCH for word in option(*one)]
        return ["bsub", "-Is" if terminal else "-I", *words, *program]

    def beside_command(
        self,
        job: str,
        hosts: Sequence[str],
        number: int,
        program: list[str],
        terminal: bool,
        environ: Mapping[str, str],
    ) -> list[str]:
        """By ssh: blaunch works in the job alone."""
        return ssh_command(hosts[number], program, terminal=terminal)

    def allocation(self, environ: Mapping[str, str], read_file: Callable[[str], str]) -> Allocation | None:
        """See `QueuedScheduler.allocation`."""
        from castoff.launcher.schedulers.lsf.allocation import find

        return find(environ)

    def script_reader(self) -> ScriptReader:
        """See `QueuedScheduler.script_reader`."""
        from castoff.launcher.schedulers.lsf.bsub_scripts import READER

        return READER

    def machine(self) -> Machine:
        """See `QueuedScheduler.machine`."""
        from castoff.launcher.schedulers.lsf.hosts import MACHINE

        return MACHINE

    def queue(self, environ: Mapping[str, str] | None = None, patience: float = PATIENCE) -> Queue:
        """See `QueuedScheduler.queue`; what plans and renders asks nothing, and loads nothing of it."""
        from castoff.launcher.schedulers.lsf.queue import LsfQueue

        return LsfQueue(environ, patience)


def _command(
    request: SubmitRequest, name: str | None, environment: Mapping[str, str], _before: str | None
) -> list[str]:
    """bsub with the script's directives as options, and the script as its command.

    Given a script on standard input, it runs a copy with a line more (OpenLava 2.2), which would not be that
    of the run directory, and whose path no answer of bjobs shows.
    """
    passed = request.directive("#BSUB -env ")
    names = "all" if passed == "all" else request.names(None if passed == "none" else passed, environment)
    own = {"-env": ["-env", names]}
    if name:
        own["-J"] = ["-J", name]
    if not request.keeps_output:
        own["-o"] = ["-o", f"{request.run_dir}/logs/lsf-%I.log"]
    if request.dependency is not None:
        own["-w"] = ["-w", directives.dependency(request.dependency)] if request.dependency else []
    lines = [shlex.split(line[len("#BSUB ") :]) for line in _directives(request.head)]
    words = [word for line in lines if line[0] not in own for word in line]
    words += [word for option in own.values() for word in option]
    if request.excluded:
        words += ["-R", f"select[{directives.other_hosts(request.excluded)}]"]
    interpreter = request.head.partition("\n")[0].removeprefix("#!").split()
    return ["bsub", *words, *interpreter, f"{request.run_dir}/job.sh"]


def _directives(head: str) -> list[str]:
    return [line for line in directives_of(head).splitlines() if line.startswith("#BSUB ")]


SCHEDULER = Lsf()
