"""Checks that all ranks were started with the same configuration."""

from __future__ import annotations

from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.flattened import fields, under
from castoff.trainers.distributed.agreement import agree
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.task import Task
from castoff.trainers.task.contract import declared_arguments

_OWN = {
    "log_level",
    "parallel.master_addr",
    "parallel.master_port",
    "parallel.output_device",
    "parallel.rank",
    "training.path",
    "training.run",
}
"""Fields that may differ between ranks: only rank 0's is used, or each rank needs its own value. A task's
`volatile_arguments` may differ, too."""


def agree_on_configuration(config: Config, task: Task, context: RankContext) -> None:
    """Check that all ranks were started with the same configuration; all ranks must call it.

    Raises:
        ConfigError: they were not; raised on all ranks.
    """
    may_differ = _OWN | declared_arguments(task, "volatile_arguments")
    every = fields(config, context.world_size, task).items()
    values = {name: value for name, value in every if not under(name, may_differ)}
    agree(values, context, "start all ranks with the same configuration")
