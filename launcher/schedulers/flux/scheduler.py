"""Flux as castoff uses it: how to call flux batch, and how to read its answers.

flux-batch(1) of flux-core 0.88.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from castoff.launcher.schedulers.base import QueuedScheduler
from castoff.launcher.schedulers.command import PATIENCE, ssh_command, version_of
from castoff.launcher.schedulers.flux import NAME, TITLE
from castoff.launcher.schedulers.flux import batch_directives as directives
from castoff.launcher.schedulers.flux.batch_directives import directive as flux_directive
from castoff.launcher.schedulers.flux.jobs import decimal
from castoff.launcher.schedulers.submit_request import SubmitCommand, SubmitRequest
from castoff.launcher.schedulers.table import reached

if TYPE_CHECKING:
    from castoff.launcher.schedulers.base_allocation import Allocation
    from castoff.launcher.schedulers.base_queue import Queue
    from castoff.launcher.schedulers.dialect import Directives
    from castoff.launcher.schedulers.machine_info import Machine
    from castoff.launcher.schedulers.script_reader import ScriptReader

_OF_BATCH = frozenset({"output", "error", "dependency", "env", "env-remove", "env-file", "cwd"})
"""Directives that have no meaning for a shell."""

_FROM = "CASTOFF_SUBMITTED_FROM"
"""The variable with the folder of the submission: the job starts in the run directory, which identifies the
job.
"""


class Flux(QueuedScheduler):
    """https://flux-framework.readthedocs.io; seen on flux-core 0.88."""

    name = NAME
    title = TITLE
    launchers = ("flux",)
    dialect = directives.DIALECT
    requeues_in_place = False
    reports_end_time = True
    interactive = "flux alloc"
    submit_command = ("flux", "batch")
    directive_mark = "#flux: "
    forbidden_path_patterns: ClassVar[Mapping[str, str]] = {
        r"\{\{": "flux batch would expand {{ as its own template",
        r"[^\S ]|[\x00-\x1f\x7f-\x9f\ud800-\udfff]": "flux batch's --output takes one line of UTF-8",
    }
    handles = reached(directives.FIELDS) | {"requeue.how"}
    handles_of_site = frozenset({"gpu_request"})
    instead: ClassVar[Mapping[str, str]] = {
        "array": "Flux has no arrays; array: {together: job} runs the members in one job",
        "qos": "drop it, or use a queue that implies it",
        "exclude": "drop it, or write it in constraint, as in -host:name7",
        "reservation": "drop it, or use the queue that implies it",
        "select": "write constraint, as in constraint: a100, for nodes that have a property",
        "memory": "drop it; Flux hands out cores and devices",
        "mail": "drop it; Flux sends none",
    }
    unreached = re.compile(r"unable to connect to flux|connection refused", re.IGNORECASE)
    no_answer = re.compile(r"timed? ?out|reset|broken pipe|terminated|protocol", re.IGNORECASE)
    refused = staticmethod(directives.refused)

    def found_on(self, environ: Mapping[str, str]) -> str | None:
        """See `Scheduler.found_on`. Other programs are called flux, too, and flux is useless unless an
        instance answers.
        """
        import shutil  # imported late, since rendering runs no program

        flux = shutil.which("flux", path=environ.get("PATH", ""))
        if flux is None or "\nbroker:" not in version_of(flux, environ):
            return None
        return f"{flux} is on PATH, and a Flux instance answers"

    def submit_commands(self, request: SubmitRequest, largest: int | None) -> list[SubmitCommand]:
        """Return the flux batch commands: one for each job of a chain."""
        words = []
        if not request.keeps_output:
            words = [f"--cwd={request.run_dir}", f"--output={request.run_dir}/logs/{request.log}-0.log"]
            words.append("--setopt=output.mode=append")
        # Flux's record of the job must not contain variables of env_from; the script reads them in its run
        # directory.
        words += [f"--env-remove={name}" for name in request.needed]
        commands = []
        for link in request.links:
            environment = request.variables(request.begin[0], link=link)
            options = [*words, *(f"--env={name}" for name in environment), f"--env={_FROM}=$PWD"]
            commands.append(SubmitCommand(environment, partial(_command, options, request, link), link=link))
        return commands

    def printed_job(self, line: str) -> str | None:
        """Read the id that flux batch prints, as a number."""
        return None if line.isdecimal() else decimal(line)

    def interactive_command(self, directives: Directives, program: list[str], terminal: bool) -> list[str]:
        """Return a flux alloc command, which passes this process's environment on to the program."""
        options = [directive for directive in directives if directive[0] not in _OF_BATCH]
        words = [word for option in options for word in shlex.split(flux_directive(*option))]
        return ["flux", "alloc", *words, *program]

    def beside_command(
        self,
        job: str,
        hosts: Sequence[str],
        number: int,
        program: list[str],
        terminal: bool,
        environ: Mapping[str, str],
    ) -> list[str]:
        """Return a flux exec command in the job's own instance; if a terminal is needed, which flux exec
        lacks, an ssh command.
        """
        if terminal:
            return ssh_command(hosts[number], program, terminal=True)
        return ["flux", "proxy", job, "flux", "exec", f"--rank={number}", "--dir=/", *program]

    def allocation(self, environ: Mapping[str, str], read_file: Callable[[str], str]) -> Allocation | None:
        """See `QueuedScheduler.allocation`."""
        from castoff.launcher.schedulers.flux.allocation import find

        return find(environ)

    def script_reader(self) -> ScriptReader:
        """See `QueuedScheduler.script_reader`."""
        from castoff.launcher.schedulers.flux.batch_scripts import READER

        return READER

    def machine(self) -> Machine:
        """See `QueuedScheduler.machine`."""
        from castoff.launcher.schedulers.flux.resources import MACHINE

        return MACHINE

    def queue(self, environ: Mapping[str, str] | None = None, patience: float = PATIENCE) -> Queue:
        """See `QueuedScheduler.queue`; imported late, since plans and scripts need no queue."""
        from castoff.launcher.schedulers.flux.queue import FluxQueue

        return FluxQueue(environ, patience)


def _command(words: list[str], request: SubmitRequest, link: int | None, before: str | None) -> list[str]:
    dependency = request.dependency_of(link, before)
    dependencies = directives.dependencies(dependency) if dependency else []
    return ["flux", "batch", *words, *dependencies, f"{request.run_dir}/job.sh"]


SCHEDULER = Flux()
