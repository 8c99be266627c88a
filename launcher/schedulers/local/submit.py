"""The local scheduler: how its process is started, and its answer."""

from __future__ import annotations

import sys

from launcher.schedulers.local.abandoned import SCHEDULER


def submit_command(run_dir: str) -> list[str]:
    """The command that runs a job on this machine; it detaches itself and prints the job's id."""
    return [sys.executable, "-m", SCHEDULER, run_dir]


def parse_submit(answer: str) -> str | None:
    """The id that it prints, as `local-4711`; None if there is none."""
    first = answer.strip().partition("\n")[0]
    return first if first.startswith("local-") else None
