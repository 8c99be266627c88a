"""A training from beginning to end, on one rank."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from launcher.ranks import RankEnv
from trainers.config import Config, PyObject
from trainers.ddp import TrainerDDP, cleanup_ddp, initialize_ddp
from trainers.gnn.report import aligned
from trainers.logs import setup_logging
from trainers.stopping import StoppedEarly

TASK = PyObject("trainers.gnn.task.CausetTask")


def train(me: RankEnv, config: Config) -> None:
    """Train what a configuration says, and report on rank 0.

    Its task is the causal sets' unless it names or describes another.

    Raises:
        ConfigError, DistributedError, CheckpointError, OSError: it cannot, and why.
    """
    setup_logging(me.rank, config.log_level)
    parallel = config.parallel
    if me.world_size > 1:
        initialize_ddp(
            me.rank,
            me.world_size,
            parallel.master_addr,
            parallel.master_port,
            parallel.backend,
            device=config.training.device,
            timeout=parallel.timeout,
        )
    try:
        trainer = TrainerDDP(me.rank, _with_task(config))
        train, validation, test = trainer.prepare_dataloaders()
        trainer.run_training(train, validation)
        if me.rank == 0:
            _report(trainer, train, test)
    except StoppedEarly:  # all ranks, together
        cleanup_ddp()
        raise
    cleanup_ddp()  # not after an error: the others may be waiting for this rank, and it for them


def _with_task(config: Config) -> Config:
    if config.task is None and not (config.model or config.data or config.criterion):
        return msgspec.structs.replace(config, task=TASK)
    return config


def _report(trainer: TrainerDDP, train: Any, test: Any) -> None:
    """Test the best model, and print and draw what it is worth.

    A task may have a `report` of its own, which gives the words, and lines for the picture.
    """
    measures = trainer.run_test(test)
    own = getattr(trainer.task, "report", None)
    if own is None:
        text = aligned({f"test {name}": value for name, value in measures.items()})
        lines: Mapping[str, float] = {}
    else:
        text, lines = own(measures, train.dataset.dataset, test.dataset.dataset)
    print(text, flush=True)
    _draw(trainer, lines)


def _draw(trainer: TrainerDDP, lines: Mapping[str, float]) -> None:
    try:
        from trainers.curves import draw

        picture = trainer.folder / "curves.png"
        draw(trainer.metrics.path, picture, dict(lines))
        print(f"curves in {picture}", flush=True)
    except ModuleNotFoundError as error:
        logging.getLogger(__name__).warning("no picture of the curves: %s", error)
