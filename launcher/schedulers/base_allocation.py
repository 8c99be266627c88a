"""Hosts that a scheduler has given to this shell (salloc, qsub -I, flux alloc).

Slurm's variables and PBS's node file hold all of it but GPUs and times, for which they are asked, as Flux is
for everything.
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
"""Variables of a job around this shell, which a script in it would take for its own."""


@dataclass(frozen=True)
class Allocation(ABC):
    """Hosts that a scheduler has given to this shell."""

    job: str
    """The scheduler's id."""
    hosts: list[str]
    """In the scheduler's order; a shell of PBS runs on the first."""
    cpus: tuple[int, ...] = ()
    """Of each host, as far as the scheduler reports and enforces them."""
    device_counts: tuple[int, ...] = ()
    """Devices of each host, as far as the scheduler enforces them."""
    in_step: bool = False
    """This shell is the one task of a step (`srun --pty bash`), which holds the cores of the job."""

    scheduler: ClassVar[str]
    """Its name."""
    title: ClassVar[str]
    """Its name, as people call it."""
    reports_end_time: ClassVar[bool] = False
    """Whether the scheduler reports when it ends, so that no walltime is needed."""

    def __str__(self) -> str:
        count = "1 host" if len(self.hosts) == 1 else f"{len(self.hosts)} hosts"
        shown = self.hosts if len(self.hosts) <= 4 else [*self.hosts[:3], "…", self.hosts[-1]]
        return f"{self.title} job {self.job} ({count}: {', '.join(shown)})"

    def threads(self, environ: Mapping[str, str]) -> str | None:
        """The OMP_NUM_THREADS that somebody has set for this shell."""
        return environ.get("OMP_NUM_THREADS")

    def devices(self, environ: Mapping[str, str], node: Node) -> int | None:
        """Of the host with the fewest; None where the scheduler does not say. `node`: the site's."""
        return None

    def larger(self, nodes: int, ranks: int, cores: int, devices: int) -> str:
        """The command that gets an allocation for so many ranks on each host, with so much for each rank."""
        return f"salloc --nodes={nodes} --ntasks-per-node={ranks} --cpus-per-task={cores}"

    def end(self, environ: Mapping[str, str]) -> float | None:
        """When it ends, in seconds since 1970; None where it is not known."""
        return None

    def environment(
        self, nodes: int, environ: Mapping[str, str], run: Path, directory: str
    ) -> dict[str, str]:
        """That of a script that stands alone on the first `nodes` hosts, whole; files may be written.

        `run` is its run directory, `directory` the one it counts as submitted from.

        Raises:
            OSError: a file in the run directory cannot be written.
        """
        others = {name: text for name, text in environ.items() if name not in _OF_ANOTHER_START}
        return {**self.narrowed(nodes, others, run, directory), "CASTOFF_RUN_DIR": str(run)}

    @abstractmethod
    def narrowed(self, nodes: int, environ: Mapping[str, str], run: Path, directory: str) -> dict[str, str]:
        """The environment whose scheduler's variables name only the first `nodes` hosts."""


def no_hosts(what: str, fix: str, names: str) -> CastoffError:
    """The error that a job is known, but not its hosts."""
    return CastoffError(
        f"{what}.\nIn that job: {fix}\nOutside of it: unset {names}\n"
        "For ranks on this host alone: castoff launch --here"
    )
