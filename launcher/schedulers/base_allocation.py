"""Hosts that a scheduler has given to this shell (salloc, qsub -I, flux alloc).

Slurm's variables and PBS's node file describe an allocation, except for GPUs and times, for which castoff
asks the scheduler. Flux is asked for everything.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from castoff.launcher.config.site_fields import Node
from castoff.launcher.errors import CastoffError

_OF_ANOTHER_START = ("CASTOFF_ATTEMPT", "CASTOFF_ARRAY_OFFSET", "SLURM_RESTART_COUNT")
"""Variables of an enclosing job that a script in this shell would take for its own."""


@dataclass(frozen=True)
class Allocation(ABC):
    """Hosts that a scheduler has given to this shell."""

    job: str
    """The scheduler's job id."""
    hosts: list[str]
    """Host names in the scheduler's order; on PBS, the shell runs on the first host."""
    cpus: tuple[int, ...] = ()
    """The number of CPUs on each host, as far as the scheduler reports and enforces it."""
    device_counts: tuple[int, ...] = ()
    """The number of devices on each host, as far as the scheduler enforces it."""
    in_step: bool = False
    """Whether this shell is the only task of a step (`srun --pty bash`), which holds the job's cores."""

    scheduler: ClassVar[str]
    """The scheduler's name in profiles."""
    title: ClassVar[str]
    """The scheduler's name in messages."""
    reports_end_time: ClassVar[bool] = False
    """Whether the scheduler reports when the allocation ends, so that no walltime is needed."""

    def __str__(self) -> str:
        count = "1 host" if len(self.hosts) == 1 else f"{len(self.hosts)} hosts"
        shown = self.hosts if len(self.hosts) <= 4 else [*self.hosts[:3], "…", self.hosts[-1]]
        return f"{self.title} job {self.job} ({count}: {', '.join(shown)})"

    def threads(self, environ: Mapping[str, str]) -> str | None:
        """Return the OMP_NUM_THREADS that the user has set for this shell."""
        return environ.get("OMP_NUM_THREADS")

    def devices(self, environ: Mapping[str, str], node: Node) -> int | None:
        """Return the number of devices on the host that has the fewest; None: not reported. `node`: the
        site's description of a node.
        """
        return None

    def larger(self, nodes: int, ranks: int, cores: int, devices: int) -> str:
        """Return the command that gets an allocation for these ranks on each node, with these cores and
        devices per rank.
        """
        return f"salloc --nodes={nodes} --ntasks-per-node={ranks} --cpus-per-task={cores}"

    def end(self, environ: Mapping[str, str]) -> float | None:
        """Return when the allocation ends, in seconds since the epoch; None: not known."""
        return None

    def environment(
        self, nodes: int, environ: Mapping[str, str], run: Path, directory: str
    ) -> dict[str, str]:
        """Return the whole environment of a script on the first `nodes` hosts; may write files into `run`.

        `run` is the script's run directory; `directory` is the folder that the script sees as its submit
        directory.

        Raises:
            OSError: a file in the run directory cannot be written.
        """
        others = {name: text for name, text in environ.items() if name not in _OF_ANOTHER_START}
        return {**self.narrowed(nodes, others, run, directory), "CASTOFF_RUN_DIR": str(run)}

    @abstractmethod
    def narrowed(self, nodes: int, environ: Mapping[str, str], run: Path, directory: str) -> dict[str, str]:
        """Return `environ` with the scheduler's variables reduced to the first `nodes` hosts."""


def no_hosts(what: str, fix: str, names: str) -> CastoffError:
    """Return the error for a job whose id is known but whose hosts are not."""
    return CastoffError(
        f"{what}.\nIn that job: {fix}\nOutside of it: unset {names}\n"
        "For ranks on this host alone: castoff launch --here"
    )
