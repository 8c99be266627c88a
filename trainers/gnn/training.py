"""A training from beginning to end, with what it was worth at the end."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import msgspec

from trainers import program
from trainers.core.config import Config, PyObject
from trainers.gnn.report import aligned

TASK = PyObject("trainers.gnn.task.CausetTask")


def train(config: Config) -> None:
    """Train what a configuration says, and report on rank 0.

    Its task is the causal sets' unless it names or describes another. A task may have a `report` of
    its own, which gives the words, and lines for the picture.

    Raises:
        ConfigError, DistributedError, CheckpointError, OSError: it cannot, and why.
    """
    trained = program.train(_with_task(config))
    if trained.measures is None:
        return
    own = getattr(trained.trainer.task, "report", None)
    if own is None:
        text = aligned({f"test {name}": value for name, value in trained.measures.items()})
        lines: Mapping[str, float] = {}
    else:
        text, lines = own(trained.measures, trained.splits.train, trained.splits.test)
    print(text, flush=True)
    _draw(trained.trainer.metrics.path, lines)


def _with_task(config: Config) -> Config:
    if config.task is None and not (config.model or config.data or config.criterion):
        return msgspec.structs.replace(config, task=TASK)
    return config


def _draw(metrics: Path, lines: Mapping[str, float]) -> None:
    try:
        from trainers.core.curves import draw

        picture = metrics.with_name("curves.png")
        draw(metrics, picture, dict(lines))
        print(f"curves in {picture}", flush=True)
    except ModuleNotFoundError as error:
        logging.getLogger(__name__).warning("no picture of the curves: %s", error)
