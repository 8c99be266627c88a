"""A training from start to end: connects the ranks, trains, and tests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from castoff.launcher.ranks import RankEnv
from castoff.trainers.configuration.config import Config
from castoff.trainers.ddp import TrainerDDP, cleanup_ddp, initialize_ddp
from castoff.trainers.distributed.failures import reported
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.distributed.stopping import StoppedEarly
from castoff.trainers.evaluation.metrics import Metrics
from castoff.trainers.program.logs import show_trainers
from castoff.trainers.reporting.curves import draw_curves
from castoff.trainers.reporting.reports import Reports
from castoff.trainers.task import Splits, Task

logger = logging.getLogger(__name__)


class Trained(NamedTuple):
    """The result of a training on this rank."""

    trainer: TrainerDDP
    """The trainer, whose `model` has the best saved weights on every rank, which were tested."""
    splits: Splits
    """The data sets that the task built."""
    metrics: Metrics | None
    """The test set's metrics; None on ranks other than 0."""


def train(
    config: Config | Mapping[str, Any] | str | Path,
    task: Task | None = None,
    overrides: Iterable[str] = (),
    *,
    reports: Callable[[Path, Config, RankContext], Reports] = Reports,
    trainer: type[TrainerDDP] = TrainerDDP,
) -> Trained:
    """Train and test `task`, or the task that the configuration names, as one rank.

    Call it the same way in one process and in every rank that castoff, torchrun or a scheduler's launcher
    starts. `config` is a YAML file, or its contents; `overrides`, such as `training.num_epochs=3`, win over
    it. `reports` and `trainer` replace the default classes.

    Raises:
        ConfigError: the configuration is wrong.
        DistributedError: the ranks cannot connect.
        StoppedEarly: see `TrainerDDP.run_training`; uncaught, it ends the program.

    An error is written to standard error before it is raised: without a traceback if it is a mistake in the
    configuration, and once for all ranks that have it. A program may catch it; the other ranks exit, and name
    this one. Uncaught, it ends the process with code 1.
    """
    me = RankEnv.detect()
    with reported(me):
        if isinstance(config, (str, Path)):
            config = Config.load(config, overrides)
        else:
            config = Config.of(config, overrides)
    show_trainers(me.rank, config.log_level)
    with reported(me, config.training.path):
        return _trained(config, me, task, reports, trainer)


def _trained(
    config: Config,
    me: RankEnv,
    task: Task | None,
    reports: Callable[[Path, Config, RankContext], Reports],
    kind: type[TrainerDDP],
) -> Trained:
    if me.world_size > 1:
        parallel = config.parallel
        initialize_ddp(
            me.rank,
            me.world_size,
            parallel.master_addr,
            parallel.master_port,
            parallel.backend,
            device=config.training.device,
            timeout=parallel.start_timeout,
        )
        words = "Initialized DDP: rank=%d, world_size=%d, local_rank=%d"
        logger.info(words, me.rank, me.world_size, me.local_rank)
    trainer = kind(me.rank, config, task, reports=reports)
    training, validation, test = trainer.prepare_dataloaders()
    try:
        trainer.run_training(training, validation)
    except StoppedEarly:
        cleanup_ddp()
        raise
    # After any other error the group is not cleaned up: that would wait for ranks that wait for this one.
    trainer.take_best()
    cleanup_ddp()
    metrics = None
    if me.rank == 0:
        metrics = trainer.run_test(test)
        trainer.reports.close()
        picture = draw_curves(trainer.folder)
        if picture is not None:
            logger.info("curves in %s", picture)
    return Trained(trainer, trainer.splits, metrics)
