"""Slurm, as the rest of castoff sees it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from launcher.config.job import JobSpec
from launcher.config.site import Site
from launcher.errors import CastoffError
from launcher.runs.plan import Plan
from launcher.schedulers.base import Configuration, QueuedScheduler
from launcher.schedulers.command import PATIENCE
from launcher.schedulers.directives import Directives, Resources
from launcher.schedulers.slurm import directives, submit

if TYPE_CHECKING:
    from launcher.schedulers.allocation import Allocation
    from launcher.schedulers.machine import Question, Told
    from launcher.schedulers.orders import Restart, Sending
    from launcher.schedulers.queue import Queue


class Slurm(QueuedScheduler):
    """https://slurm.schedmd.com; seen from 22.05 on."""

    name = directives.NAME
    title = "Slurm"
    starters = ("srun", "hydra", "intelmpi", "openmpi")
    dialect = directives.DIALECT
    has_qos = True
    interactive = "salloc"
    longest_grace = 65535  # sbatch's --signal
    splits_arrays = True
    warns = True
    counts_cpus = True

    def directives(self, spec: JobSpec, site: Site, resources: Resources) -> Directives:
        """Those of sbatch."""
        return directives.directives(spec, site, resources)

    def contradictions(self, spec: JobSpec, site: Site, resources: Resources) -> Iterable[tuple[str, str]]:
        """Requests for GPUs beside the job's own."""
        own = directives.devices(
            site, resources.devices_per_task, resources.devices_per_node, resources.whole_nodes
        )
        return directives.contradictions(spec, own)

    def found_on(self, environ: Mapping[str, str]) -> str | None:
        """sbatch is Slurm's alone."""
        sbatch = shutil.which("sbatch", path=environ.get("PATH", ""))
        return sbatch and f"{sbatch} is on PATH"

    def check_reachable(self, environ: Mapping[str, str]) -> None:
        """sbatch is needed."""
        if shutil.which("sbatch", path=environ.get("PATH")) is None:
            raise CastoffError(
                "sbatch is not on PATH here: submit where the scheduler's commands are, as on a login node; "
                "`castoff render` needs none"
            )

    def check_run_dir(self, run_dir: str) -> None:
        """As sbatch's --output and squeue's lines take it."""
        submit.check_run_dir(run_dir)

    def configuration(self, environ: Mapping[str, str]) -> Configuration:
        """By scontrol."""
        return submit.configuration(environ)

    def first(self, plan: Plan, run_dir: str, dependency: str | None, largest: int | None) -> list[Sending]:
        """sbatch, once for each part of an array."""
        return submit.first(plan, run_dir, dependency, largest)

    def again(self, restart: Restart, largest: int | None) -> list[Sending]:
        """sbatch, once for each attempt and part."""
        return submit.again(restart, largest)

    def parse_submit(self, answer: str) -> str | None:
        """What `sbatch --parsable` prints."""
        return submit.parse_submit(answer)

    def was_refused(self, code: int, words: str) -> bool:
        """Unless sbatch waited for an answer in vain."""
        return submit.was_refused(code, words)

    def forgets_dependency(self, head: str) -> bool:
        """slurmctld forgets jobs after MinJobAge."""
        return "\n#SBATCH --dependency=" in head

    def queue(self, environ: Mapping[str, str] | None = None, patience: float = PATIENCE) -> Queue:
        """squeue and sacct."""
        from launcher.schedulers.slurm.queue import SlurmQueue

        return SlurmQueue(environ, patience)

    def cancel_command(self, jobs: Sequence[str]) -> list[str]:
        """scancel, which ends whole arrays too."""
        return ["scancel", *jobs]

    @property
    def questions(self) -> Sequence[Question]:
        """scontrol, sinfo and sacctmgr."""
        from launcher.schedulers.slurm.machine import QUESTIONS

        return QUESTIONS

    def told(self, answers: Mapping[str, str]) -> Told:
        """What those say."""
        from launcher.schedulers.slurm.machine import parse

        return parse(answers)

    def allocation(self, environ: Mapping[str, str], read_file: Callable[[str], str]) -> Allocation | None:
        """By SLURM_JOB_ID."""
        from launcher.schedulers.slurm.allocation import find

        return find(environ)


SCHEDULER = Slurm()
