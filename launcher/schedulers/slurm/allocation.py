"""Allocations of Slurm: the hosts of this shell (salloc, sbatch), and commands that join a running job."""

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
"""Prefixes of variables about this shell's own step, which an srun in this shell would obey."""


@dataclass(frozen=True)
class SlurmAllocation(Allocation):
    """An allocation of Slurm. If this shell is a step, it holds the job's cores unless srun is asked to share
    them.
    """

    scheduler: ClassVar[str] = NAME
    title: ClassVar[str] = TITLE
    reports_end_time: ClassVar[bool] = True

    def devices(self, environ: Mapping[str, str], node: Node) -> int | None:
        """See `Allocation.devices`. The number comes from --gpus-per-node; otherwise, as with --gres, from
        scontrol.
        """
        requested = environ.get("SLURM_GPUS_PER_NODE", "")
        kind, _, count = requested.rpartition(":")  # as in a100:2
        if count.isdecimal() and "," not in kind:
            return int(count)
        try:
            shown = answer_of(["scontrol", "show", "job", "--details", self.job], PATIENCE, environ)
        except SchedulerUnreachable:
            return None
        return _fewest_devices(shown)

    def end(self, environ: Mapping[str, str]) -> float | None:
        """See `Allocation.end`. The time comes from SLURM_JOB_END_TIME; before Slurm 23.02, from squeue."""
        end_time = environ.get("SLURM_JOB_END_TIME", "")
        if end_time.isdecimal():
            return float(end_time)
        command = ["squeue", "--noheader", "--job", self.job, "--format", "%e"]
        try:
            return float(answer_of(command, PATIENCE, environ))
        except (SchedulerUnreachable, ValueError):
            return None

    def narrowed(self, nodes: int, environ: Mapping[str, str], run: Path, directory: str) -> dict[str, str]:
        """Return Slurm's variables, reduced to the hosts in use."""
        changed = {**environ, "SLURM_SUBMIT_DIR": directory, "SLURM_JOB_ID": self.job}
        if nodes < len(self.hosts):
            changed["SLURM_JOB_NODELIST"] = changed["SLURM_NODELIST"] = ",".join(self.hosts[:nodes])
            changed["SLURM_JOB_NUM_NODES"] = changed["SLURM_NNODES"] = str(nodes)
        if (end := self.end(environ)) is not None:
            changed["SLURM_JOB_END_TIME"] = str(int(end))
        if self.in_step:
            changed = {name: text for name, text in changed.items() if not name.startswith(_OF_THE_STEP)}
            changed["SLURM_OVERLAP"] = "1"  # otherwise srun would wait for this shell to release its cores
        return changed


def find(environ: Mapping[str, str], read_file: Callable[[str], str]) -> SlurmAllocation | None:
    """Return the allocation that the environment describes; None: there is none."""
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
    """Count the GPUs of the host with the fewest, in text such as `Nodes=n1 CPU_IDs=0 Mem=2000
    GRES=gpu:a100:2(IDX:0-1)`, in which `GRES=` may be empty.
    """
    hosts = re.findall(r"^ *Nodes=.* GRES=(\S*)", shown, re.MULTILINE)
    counts = [[int(count) for count in re.findall(r"\bgpu:(?:[^,:()]+:)?(\d+)", gres)] for gres in hosts]
    return min(map(sum, counts), default=None)


_STEP = "srun --nodes=1 --ntasks=1 --cpu-bind=none --mpi=none"
_SHARES_BY_ITSELF = (20, 11)
"""The first version of Slurm in which steps do not share cores unless srun has --overlap (release notes)."""


def beside_command(
    job: str, host: str, program: list[str], terminal: bool, environ: Mapping[str, str]
) -> list[str]:
    """Return the srun command.

    Raises:
        CastoffError: Slurm does not report the job id of an array's member.
    """
    version = re.search(r"(\d+)\.(\d+)", version_of("sbatch", environ))
    old = version is not None and (int(version[1]), int(version[2])) < _SHARES_BY_ITSELF
    return [
        *_STEP.split(),
        # the current folder may not exist on that host; the program changes to the rank's folder
        "--chdir=/",
        *(f"--jobid={_own_id(job, environ)}", f"--nodelist={host}", *([] if old else ["--overlap"])),
        *(["--pty"] if terminal else []),
        *program,
    ]


def _own_id(job: str, environ: Mapping[str, str]) -> str:
    """Return the job id that srun accepts: each member of an array has a separate id."""
    if "_" not in job:
        return job
    command = ["squeue", "--noheader", "--job", job, "--format", "%A"]
    try:
        ids = answer_of(command, PATIENCE, environ).split()
    except SchedulerUnreachable as error:
        raise CastoffError(f"Slurm could not be asked about job {job}: {error}") from None
    if not ids:
        raise CastoffError(f"Slurm no longer knows job {job}; it may just have ended")
    return ids[0]
