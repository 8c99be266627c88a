"""Allocations of PBS: the hosts of this shell (qsub -I), and commands that join a running job."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from castoff.launcher.config.site_fields import Node
from castoff.launcher.process import files
from castoff.launcher.ranks.hostlist import read_nodefile
from castoff.launcher.schedulers.base_allocation import Allocation, no_hosts
from castoff.launcher.schedulers.command import PATIENCE, SchedulerUnreachable, answer_of, ssh_command
from castoff.launcher.schedulers.pbs import NAME, TITLE
from castoff.launcher.schedulers.pbs.jobs import blocks


@dataclass(frozen=True)
class PbsAllocation(Allocation):
    """An allocation of PBS, whose hosts are listed in a file."""

    scheduler: ClassVar[str] = NAME
    title: ClassVar[str] = TITLE

    def threads(self, environ: Mapping[str, str]) -> str | None:
        """Return the user's OMP_NUM_THREADS, not the one that PBS itself sets to the CPUs of a chunk."""
        threads = super().threads(environ)
        return None if threads == environ.get("NCPUS") else threads

    def devices(self, environ: Mapping[str, str], node: Node) -> int | None:
        """See `Allocation.devices`: counts the devices of the chunks that qstat reports; None for whole
        nodes, whose devices all belong to the job.
        """
        if node.exclusive:
            return None
        try:
            shown = answer_of(["qstat", "-f", "-w", self.job], PATIENCE, environ)
        except SchedulerUnreachable:
            return None
        vnodes = (attributes.get("exec_vnode", "") for _, attributes in blocks(iter([shown])))
        return _fewest_devices(next(vnodes, ""), len(self.hosts))

    def narrowed(self, nodes: int, environ: Mapping[str, str], run: Path, directory: str) -> dict[str, str]:
        """Return PBS's variables, with a new node file if only some hosts are in use."""
        changed = {**environ, "PBS_O_WORKDIR": directory}
        if nodes < len(self.hosts):
            path = run / "nodefile"
            files.replace(path, "".join(f"{host}\n" for host in self.hosts[:nodes]))
            changed["PBS_NODEFILE"] = str(path)
        return changed


def find(environ: Mapping[str, str], read_file: Callable[[str], str]) -> PbsAllocation | None:
    """Return the allocation that the environment describes; None: there is none."""
    job = environ.get("PBS_JOBID")
    if not job:
        return None
    reason = "PBS_NODEFILE is not set"
    if path := environ.get("PBS_NODEFILE"):
        try:
            if hosts := read_nodefile(read_file(path)):
                return PbsAllocation(job, hosts)
            reason = f"PBS_NODEFILE={path} is empty"
        except OSError as error:
            reason = f"PBS_NODEFILE={path} cannot be read: {error.strerror}"
    raise no_hosts(
        f"PBS_JOBID={job} is set, but its hosts are not known: {reason}",
        f"export PBS_NODEFILE=/var/spool/pbs/aux/{job}, or wherever your PBS keeps it",
        "PBS_JOBID",
    )


def _fewest_devices(chunks: str, hosts: int) -> int | None:
    """Count the devices of the host with the fewest in
    `(n1[0]:ncpus=4:ngpus=1+n1[1]:ncpus=4)+(n2:ngpus=2)`; None if no chunk reports any.
    """
    devices: dict[str, int] = {}
    for name, resources in re.findall(r"([^()+:]+)((?::[^()+:]*)*)", chunks):
        counts = re.findall(r":ngpus=(\d+)", resources)
        host = name.partition("[")[0]
        devices[host] = devices.get(host, 0) + sum(map(int, counts))
    return min(devices.values()) if ":ngpus=" in chunks and len(devices) == hosts else None


_ATTACH = """\
own=$(. /etc/pbs.conf 2>/dev/null && echo "$PBS_EXEC/bin/pbs_attach")
for attach in "$(command -v pbs_attach)" "$own"; do
  if [ -x "$attach" ]; then "$attach" -j "$1" -p $$ >/dev/null 2>&1 && break; fi
done
shift
exec "$@"
"""
"""A script that attaches its session to a job, if PBS allows that; the session ends with the job, and sees
the job's devices.
"""


def beside_command(
    job: str, host: str, program: list[str], terminal: bool, environ: Mapping[str, str]
) -> list[str]:
    """Return an ssh command, since pbs_tmrsh works only within the job, and has no terminal
    (pbs_tmrsh(8B)).
    """
    if environ.get("PBS_JOBID") == job and not terminal:
        return ["pbs_tmrsh", host, *program]
    return ssh_command(host, ["/bin/sh", "-c", _ATTACH, "castoff", job, *program], terminal=terminal)
