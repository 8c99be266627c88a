"""Hosts that Slurm has given: to this shell, by salloc or sbatch, and to a job that a command is to join."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from castoff.launcher.config.site_fields import Node
from castoff.launcher.errors import CastoffError
from castoff.launcher.ranks.families import Around, slurm_in_step, tasks_on_node
from castoff.launcher.ranks.hostlist import expand
from castoff.launcher.ranks.rendezvous import job_id
from castoff.launcher.schedulers.base_allocation import Allocation, no_hosts
from castoff.launcher.schedulers.command import PATIENCE, SchedulerUnreachable, answer_of, version_of
from castoff.launcher.schedulers.slurm import NAME, TITLE

_OF_THE_STEP = ("SLURM_CPU_BIND", "SLURM_MEM_BIND", "SLURM_DISTRIBUTION")
"""Prefixes of variables of the step that this shell is, which an srun in it would obey."""


@dataclass(frozen=True)
class SlurmAllocation(Allocation):
    """Slurm's; a step's shell has the job's cores for itself unless srun is asked to share them."""

    scheduler: ClassVar[str] = NAME
    title: ClassVar[str] = TITLE
    reports_end_time: ClassVar[bool] = True

    def devices(self, environ: Mapping[str, str], node: Node) -> int | None:
        """As salloc and sbatch were asked for them; else as scontrol has them, with --gres as well."""
        asked = environ.get("SLURM_GPUS_PER_NODE", "")
        kind, _, count = asked.rpartition(":")  # as in a100:2
        if count.isdecimal() and "," not in kind:
            return int(count)
        try:
            shown = answer_of(["scontrol", "show", "job", "--details", self.job], PATIENCE, environ)
        except SchedulerUnreachable:
            return None
        return _fewest_devices(shown)

    def end(self, environ: Mapping[str, str]) -> float | None:
        """By its variable; from before Slurm 23.02 by squeue."""
        end_time = environ.get("SLURM_JOB_END_TIME", "")
        if end_time.isdecimal():
            return float(end_time)
        command = ["squeue", "--noheader", "--job", self.job, "--format", "%e"]
        try:
            return float(answer_of(command, PATIENCE, environ))
        except (SchedulerUnreachable, ValueError):
            return None

    def narrowed(self, nodes: int, environ: Mapping[str, str], run: Path, directory: str) -> dict[str, str]:
        """Slurm's variables, cut down to the hosts in use."""
        changed = {**environ, "SLURM_SUBMIT_DIR": directory, "SLURM_JOB_ID": self.job}
        if nodes < len(self.hosts):
            changed["SLURM_JOB_NODELIST"] = changed["SLURM_NODELIST"] = ",".join(self.hosts[:nodes])
            changed["SLURM_JOB_NUM_NODES"] = changed["SLURM_NNODES"] = str(nodes)
        if (end := self.end(environ)) is not None:
            changed["SLURM_JOB_END_TIME"] = str(int(end))
        if self.in_step:
            changed = {name: text for name, text in changed.items() if not name.startswith(_OF_THE_STEP)}
            changed["SLURM_OVERLAP"] = "1"  # else srun would wait for this shell to let go of its cores
        return changed


def find(environ: Mapping[str, str], read_file: Callable[[str], str]) -> SlurmAllocation | None:
    """The allocation that the environment describes, if it does."""
    around = Around(environ)
    job = job_id(around)
    if not job:
        return None
    hosts = expand(around.get("SLURM_JOB_NODELIST", ""))
    if not hosts:
        raise no_hosts(
            f"SLURM_JOB_ID={job} is set, but SLURM_JOB_NODELIST, which lists its hosts, is not",
            f'export SLURM_JOB_NODELIST="$(squeue --noheader --job {job} --format %N)"',
            "SLURM_JOB_ID SLURM_JOBID",
        )
    counts = around.get("SLURM_JOB_CPUS_PER_NODE")
    cpus: tuple[int, ...] = ()
    if counts is not None and "SLURM_OVERCOMMIT" not in around:
        cpus = tuple(tasks_on_node(counts, node) for node in range(len(hosts)))
    return SlurmAllocation(job, hosts, cpus, in_step=slurm_in_step(around))


def _fewest_devices(shown: str) -> int | None:
    """By `Nodes=n1 CPU_IDs=0 Mem=2000 GRES=gpu:a100:2(IDX:0-1)`, or `GRES=` alone, of a host or several."""
    found = re.findall(r"^ *Nodes=.* GRES=(\S*)", shown, re.MULTILINE)
    counts = [[int(count) for count in re.findall(r"\bgpu:(?:[^,:()]+:)?(\d+)", one)] for one in found]
    return min(map(sum, counts), default=None)


_STEP = "srun --nodes=1 --ntasks=1 --cpu-bind=none --mpi=none"
_SHARES_BY_ITSELF = (20, 11)
"""Before this version all steps shared, and srun knows no --overlap (its release notes)."""


def beside_command(
    job: str, host: str, program: list[str], terminal: bool, environ: Mapping[str, str]
) -> list[str]:
    """The srun command.

    Raises:
        CastoffError: Slurm does not say which job a member of an array is.
    """
    version = re.search(r"(\d+)\.(\d+)", version_of("sbatch", environ))
    old = version is not None and (int(version[1]), int(version[2])) < _SHARES_BY_ITSELF
    return [
        *_STEP.split(),
        "--chdir=/",  # ours may not exist there; the program goes to its rank's
        *(f"--jobid={_own_id(job, environ)}", f"--nodelist={host}", *([] if old else ["--overlap"])),
        *(["--pty"] if terminal else []),
        *program,
    ]


def _own_id(job: str, environ: Mapping[str, str]) -> str:
    """The id that srun takes: each member of an array has one of its own."""
    if "_" not in job:
        return job
    ask = ["squeue", "--noheader", "--job", job, "--format", "%A"]
    try:
        found = answer_of(ask, PATIENCE, environ).split()
    except SchedulerUnreachable as why:
        raise CastoffError(f"Slurm could not be asked about job {job}: {why}") from None
    if not found:
        raise CastoffError(f"Slurm no longer knows job {job}; it may just have ended")
    return found[0]
