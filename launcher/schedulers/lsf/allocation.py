"""Hosts that LSF has given to this shell (bsub -Is), by its variables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from castoff.launcher.schedulers.base_allocation import Allocation, no_hosts
from castoff.launcher.schedulers.lsf import JOB_VARIABLES, NAME, TITLE

_HOSTS = "LSB_MCPU_HOSTS"
"""Each host of a job, and its slots."""


@dataclass(frozen=True)
class LsfAllocation(Allocation):
    """LSF's, which lists its hosts in a variable."""

    scheduler: ClassVar[str] = NAME
    title: ClassVar[str] = TITLE

    def larger(self, nodes: int, ranks: int, cores: int, devices: int) -> str:
        """See `Allocation.larger`."""
        slots, gpus = ranks * cores, f' -gpu "num={ranks * devices}"' if devices else ""
        return f'bsub -Is -n {nodes * slots} -R "span[ptile={slots}]"{gpus} bash'

    def narrowed(self, nodes: int, environ: Mapping[str, str], run: Path, directory: str) -> dict[str, str]:
        """The same, with the slots of the first hosts."""
        words = environ[_HOSTS].split()[: 2 * nodes]
        return {**environ, "LS_SUBCWD": directory, _HOSTS: " ".join(words)}


def find(environ: Mapping[str, str]) -> LsfAllocation | None:
    """The allocation that the environment describes, if it does."""
    (variable,) = JOB_VARIABLES
    if not (job := environ.get(variable)):
        return None
    hosts = list(dict.fromkeys(environ.get(_HOSTS, "").split()[::2]))
    if not hosts:
        what = f"{variable}={job} is set, but its hosts are not known: {_HOSTS} is not set"
        raise no_hosts(what, f'export {_HOSTS}="HOST SLOTS …"', variable)
    return LsfAllocation(job, hosts)
