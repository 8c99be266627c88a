"""TrainerDDP for graphs: the core's, for configurations that describe a network on graphs."""

from __future__ import annotations

from trainers import ddp
from trainers.core.distributed import cleanup_ddp, initialize_ddp
from trainers.gnn.task import GraphTask

__all__ = ["TrainerDDP", "cleanup_ddp", "initialize_ddp"]


class TrainerDDP(ddp.TrainerDDP):
    """The core's trainer, with `GraphTask` for what a configuration describes without a task."""

    describes = GraphTask
