"""Which queue is whose."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.schedulers.queue import PATIENCE, Queue

NAMES = {"slurm": "Slurm", "pbs": "PBS", "local": "castoff's own scheduler", "": "no known scheduler"}
"""How schedulers are called."""


def queue_of(scheduler: str, environ: Mapping[str, str] | None = None, patience: float = PATIENCE) -> Queue:
    """The queue of Slurm or PBS.

    `environ`: that of its commands (default: this process's). `patience`: seconds for an answer.
    """
    if scheduler == "slurm":
        from launcher.schedulers.slurm.queue import SlurmQueue

        return SlurmQueue(environ, patience)
    from launcher.schedulers.pbs.queue import PbsQueue

    return PbsQueue(environ, patience)
