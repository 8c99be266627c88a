"""Slurm as castoff uses it: how to call sbatch, and how to read its answers.

https://slurm.schedmd.com/sbatch.html.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, get_args

from castoff.launcher.config.job_fields import Condition
from castoff.launcher.schedulers.base import QueuedScheduler
from castoff.launcher.schedulers.command import PATIENCE
from castoff.launcher.schedulers.slurm import NAME, TITLE
from castoff.launcher.schedulers.slurm import sbatch_directives as directives
from castoff.launcher.schedulers.submit_request import Part, SubmitCommand, SubmitRequest
from castoff.launcher.schedulers.table import OF_SHARED_JOBS, reached

if TYPE_CHECKING:
    from castoff.launcher.schedulers.base_allocation import Allocation
    from castoff.launcher.schedulers.base_queue import Queue
    from castoff.launcher.schedulers.dialect import Directives
    from castoff.launcher.schedulers.machine_info import Machine
    from castoff.launcher.schedulers.script_reader import ScriptReader

_PARSABLE = re.compile(r"([0-9]+)(?:;[\w.-]+)?")
_OF_BATCH = frozenset(
    {
        *("output", "error", "input", "open-mode", "signal", "requeue", "no-requeue", "export"),
        *("export-file", "array", "dependency", "wrap", "parsable", "test-only", "propagate", "batch"),
        *("ignore-pbs", "wait", "quiet"),
    }
)
"""Directives that salloc does not take, or that have no meaning for a shell."""

_STEP = "srun --interactive --preserve-env"
_SENTENCE = re.compile(r"(?:sbatch: )?Submitted batch job ([0-9]+)(?: on cluster [\w.-]+)?")


class Slurm(QueuedScheduler):
    """https://slurm.schedmd.com; tested with 22.05 and later."""

    name = NAME
    title = TITLE
    launchers = ("srun", "hydra", "intelmpi", "openmpi")
    dialect = directives.DIALECT
    interactive = "salloc"
    submit_command = ("sbatch",)
    trial_command = ("sbatch", "--test-only")
    directive_mark = "#SBATCH "
    forbidden_path_patterns: ClassVar[Mapping[str, str]] = {
        # sbatch(1), filename pattern: a \ is left out itself, and makes every % literal.
        r"\\": "Slurm's log files can have no backslash in their path",
        r"\n": "squeue's lines can show no path with a line break",
    }
    handles = reached(directives.FIELDS) | {*OF_SHARED_JOBS}
    handles_of_site = frozenset(
        {
            *("qos.source", "qos.date", "qos.ranges.min_nodes", "qos.ranges.max_nodes", "qos.max_jobs"),
            *(
                "qos.ranges.min_walltime",
                "qos.ranges.max_walltime",
                "qos.array_max_concurrent",
                "qos.max_devices",
                "qos.device_counts",
                "qos.exclusive",
            ),
            *(
                "qos.listed_as",
                "qos.submit_to",
                "qos.by_request",
                "other_qos",
                "default_qos",
                "queues.array_max_concurrent",
            ),
            *("array.source", "array.date", "array.max_count", "gpu_request", "gpu_bind"),
        }
    )
    instead: ClassVar[Mapping[str, str]] = {
        "requeue.how": "drop it, since Slurm restarts the same job by itself",
        "select": "write constraint, as in constraint: a100, for nodes that have a feature",
    }
    longest_grace = 65535  # sbatch's --signal
    splits_arrays = True
    reruns_jobs = True
    reports_end_time = True
    counts_cpus = True
    conditions = get_args(Condition)
    waits_for_requeued = True
    excludes_hosts = True
    plain_ids = True
    unreached = re.compile(r"connect failure|connection refused", re.IGNORECASE)
    no_answer = re.compile(  # slurm_errno.c
        r"timed out|zero bytes|(receive|send) failure|communication (shutdown|failure)|connection reset|"
        r"transport|protocol|unspecified error",
        re.IGNORECASE,
    )
    contradictions = staticmethod(directives.contradictions)

    def found_on(self, environ: Mapping[str, str]) -> str | None:
        """See `Scheduler.found_on`; only Slurm has a command called sbatch."""

        sbatch = shutil.which("sbatch", path=environ.get("PATH", ""))
        return sbatch and f"{sbatch} is on PATH"

    def printed_job(self, line: str) -> str | None:
        """Read the output of --parsable, `id` or `id;cluster`; or sbatch's sentence, if the site's own sbatch
        drops that option.
        """
        match = _PARSABLE.fullmatch(line) or _SENTENCE.fullmatch(line)
        return match and match[1]

    def submit_commands(self, request: SubmitRequest, largest: int | None) -> list[SubmitCommand]:
        """Return the sbatch commands: one for each attempt, and for each part of an array."""
        array, passed = request.directive("#SBATCH --array="), request.directive("#SBATCH --export=")
        max_concurrent = (array or "").partition("%")[2]
        commands = []
        for attempt in sorted({*request.begin.values()}):
            members = (member for member in request.begin if request.begin[member] == attempt)
            for array_part in parts(members, largest or max(request.begin) + 1):
                part = array_part if array is not None else None
                environment = request.variables(attempt, part)
                words = [] if request.keeps_output else [_output(request, part)]
                # A name in addition to ALL would make Slurm read the user's login environment, too (22.05).
                names = passed if passed == "ALL" else request.names(passed, environment)
                words.append(f"--export={names}")
                if request.excluded:
                    of_script = request.directive("#SBATCH --exclude=")
                    words.append(f"--exclude={','.join([*filter(None, [of_script]), *request.excluded])}")
                indices = part and f"{part.indices}%{max_concurrent}".rstrip("%")
                if indices != array:
                    words.append(f"--array={indices}")
                commands.append(
                    SubmitCommand(environment, partial(_command, words, request, bool(max_concurrent)), part)
                )
        return commands

    def script_reader(self) -> ScriptReader:
        """See `QueuedScheduler.script_reader`."""
        from castoff.launcher.schedulers.slurm.sbatch_scripts import READER

        return READER

    def machine(self) -> Machine:
        """See `QueuedScheduler.machine`."""
        from castoff.launcher.schedulers.slurm.partitions import MACHINE

        return MACHINE

    def queue(self, environ: Mapping[str, str] | None = None, patience: float = PATIENCE) -> Queue:
        """See `QueuedScheduler.queue`; imported late, since plans and scripts need no queue."""
        from castoff.launcher.schedulers.slurm.queue import SlurmQueue

        return SlurmQueue(environ, patience)

    def interactive_command(self, directives: Directives, program: list[str], terminal: bool) -> list[str]:
        """Return a salloc command with the step that salloc itself would start if the site configured that
        (slurm.conf(5)).
        """
        options = [
            f"--{name}" if value is True else f"--{name}={value}"
            for name, value in directives
            if name not in _OF_BATCH
        ]
        step = ["--pty"] if terminal else []
        return ["salloc", *options, *_STEP.split(), *step, *program]

    def beside_command(
        self,
        job: str,
        hosts: Sequence[str],
        number: int,
        program: list[str],
        terminal: bool,
        environ: Mapping[str, str],
    ) -> list[str]:
        """Return an srun command whose step shares the job's resources with its other steps."""
        from castoff.launcher.schedulers.slurm.allocation import beside_command

        return beside_command(job, hosts[number], program, terminal, environ)

    def allocation(self, environ: Mapping[str, str], read_file: Callable[[str], str]) -> Allocation | None:
        """See `QueuedScheduler.allocation`; uses Slurm's variables."""
        from castoff.launcher.schedulers.slurm.allocation import find

        return find(environ, read_file)


def parts(members: Iterable[int], largest: int) -> list[Part]:
    """Split members into arrays that Slurm accepts: Slurm limits the index, so each part counts from
    0 again.
    """
    by_offset: dict[int, list[int]] = {}
    for member in sorted(members):
        by_offset.setdefault(member // largest * largest, []).append(member)
    return [Part(these, offset) for offset, these in by_offset.items()]


def _output(request: SubmitRequest, part: Part | None) -> str:
    name = f"{request.log}-0.log"
    if part is not None:
        # Slurm cannot add an offset to %a: the script itself writes to the member's log.
        name = "slurm-%A_%a.log" if part.offset else f"{request.log}-%a.log"
    pattern = request.run_dir.replace("%", "%%")
    return f"--output={pattern}/logs/{name}"


def _command(words: list[str], request: SubmitRequest, in_turn: bool, before: str | None) -> list[str]:
    """Return the sbatch command. The options --output, --export and --array replace those of the script's
    directives.

    `in_turn`: whether the job also waits for the previous part, since Slurm limits how many members run at
    once only within a job.
    """
    of_script = request.directive("#SBATCH --dependency=") or ""
    dependency = of_script if request.dependency is None else request.dependency
    if before and in_turn:
        dependency = ",".join(filter(None, [dependency, f"afterany:{before}"]))
    wait_option = [] if dependency == of_script else [f"--dependency={dependency}"]
    return ["sbatch", "--parsable", *words, *wait_option, f"{request.run_dir}/job.sh"]


SCHEDULER = Slurm()
