"""TrainerDDP for graphs: the core's, for configurations that describe a network on graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainers import ddp
from trainers.core.config import Config
from trainers.core.distributed import cleanup_ddp, initialize_ddp
from trainers.gnn.defaults import with_defaults
from trainers.gnn.task import GraphTask
from trainers.task import Task

__all__ = ["TrainerDDP", "cleanup_ddp", "initialize_ddp"]


class TrainerDDP(ddp.TrainerDDP):
    """The core's trainer, with `GraphTask` for what a configuration describes without a task.

    Where causal sets are generated, what it leaves out is filled in, and stands in the run's config.yaml.
    """

    describes = GraphTask

    def __init__(self, rank: int, config: Mapping[str, Any] | Config, task: Task | None = None, **more: Any):
        described = Config.of(config)
        super().__init__(rank, described if task is not None else with_defaults(described), task, **more)
