"""Hosts that PBS has given to this shell: `qsub -I`, or a script of qsub."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from launcher.ranks.hostlist import read_nodefile
from launcher.runs.records import write_file
from launcher.schedulers.base_allocation import Allocation, no_hosts
from launcher.schedulers.pbs import NAME, TITLE


@dataclass(frozen=True)
class PbsAllocation(Allocation):
    """PBS's, which lists its hosts in a file."""

    scheduler: ClassVar[str] = NAME
    title: ClassVar[str] = TITLE

    def threads(self, environ: Mapping[str, str]) -> str | None:
        """PBS itself sets OMP_NUM_THREADS to the CPUs of a chunk."""
        threads = super().threads(environ)
        return None if threads == environ.get("NCPUS") else threads

    def narrowed(self, nodes: int, environ: Mapping[str, str], run: Path, directory: str) -> dict[str, str]:
        """PBS's variables, with a node file of the hosts in use where its own has more."""
        changed = {**environ, "PBS_O_WORKDIR": directory}
        if nodes < len(self.hosts):
            path = run / "nodefile"
            write_file(path, "".join(f"{host}\n" for host in self.hosts[:nodes]))
            changed["PBS_NODEFILE"] = str(path)
        return changed


def find(environ: Mapping[str, str], read_file: Callable[[str], str]) -> PbsAllocation | None:
    """The allocation that the environment describes, if it does."""
    job = environ.get("PBS_JOBID")
    if not job:
        return None
    why = "PBS_NODEFILE is not set"
    if path := environ.get("PBS_NODEFILE"):
        try:
            if hosts := read_nodefile(read_file(path)):
                return PbsAllocation(job, hosts)
            why = f"PBS_NODEFILE={path} is empty"
        except OSError as error:
            why = f"PBS_NODEFILE={path} cannot be read: {error.strerror}"
    raise no_hosts(
        f"PBS_JOBID={job} is set, but its hosts are not known: {why}",
        f"export PBS_NODEFILE=/var/spool/pbs/aux/{job}, or wherever your PBS keeps it",
        "PBS_JOBID",
    )
