"""A training from beginning to end, with what it was worth at the end."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trainers import program
from trainers.core.config import Config
from trainers.core.curves import draw_curves
from trainers.core.pyobject import PyObject
from trainers.core.table import aligned
from trainers.gnn.ddp import TrainerDDP

TASK = PyObject("trainers.gnn.task.CausetTask")


def train(config: Config) -> None:
    """Train what a configuration says, and report on rank 0.

    Its task is the causal sets' unless it names or describes another. A task may have a `report` of
    its own, which gives the words, and lines for the picture.

    Raises:
        ConfigError, DistributedError, CheckpointError, OSError: it cannot, and why.
    """
    trained = program.train(_with_task(config), trainer=TrainerDDP)
    if trained.measures is None:
        return
    own = getattr(trained.trainer.task, "report", None)
    if own is None:
        text = aligned({f"test {name}": value for name, value in trained.measures.items()})
        lines: Mapping[str, float] = {}
    else:
        text, lines = own(trained.measures, trained.splits.train, trained.splits.test)
    print(text, flush=True)
    if lines:
        draw_curves(trained.trainer.folder, lines)


def _with_task(config: Config) -> Config:
    if config.task is None and not (config.model or config.data or config.criterion):
        return msgspec.structs.replace(config, task=TASK)
    return config
