"""This machine as an allocation, which is always available as a whole and never ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from castoff.launcher.schedulers.base_allocation import Allocation
from castoff.launcher.schedulers.local.control import INDEX
from castoff.launcher.schedulers.local.scheduler import Local


@dataclass(frozen=True)
class ThisMachine(Allocation):
    """An allocation of this host; scripts in it get the same variables as scripts of castoff's own
    scheduler.
    """

    scheduler: ClassVar[str] = Local.name
    title: ClassVar[str] = Local.title

    def __str__(self) -> str:
        return f"this machine ({self.hosts[0]})"

    def narrowed(self, nodes: int, environ: Mapping[str, str], run: Path, directory: str) -> dict[str, str]:
        """Add the variables that castoff's own scheduler sets for a script."""
        return {**environ, "CASTOFF_JOB_ID": self.job, "CASTOFF_SUBMIT_DIR": directory, INDEX: "0"}
