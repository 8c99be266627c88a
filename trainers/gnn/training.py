"""A training of causal sets from beginning to end, on one rank."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterable
from typing import Any

import msgspec

from launcher.ranks import PlacementError, RankEnv
from trainers.config import Config, PyObject
from trainers.ddp import TrainerDDP, cleanup_ddp, initialize_ddp
from trainers.gnn.data import Causets
from trainers.gnn.failures import end, words
from trainers.gnn.report import linear_error, plain_table, table
from trainers.gnn.task import CausetTask
from trainers.logs import setup_logging
from trainers.stopping import StoppedEarly

TASK = PyObject("trainers.gnn.task.CausetTask")


def train(path: str, overrides: Iterable[str] = ()) -> None:
    """Train what a YAML file says, and report on rank 0; the end of this process if it fails."""
    try:
        me = RankEnv.detect()
    except PlacementError as error:
        sys.exit("\n".join(words(str(error))))
    folder = None
    try:
        config = Config.load(path, overrides)
        folder = config.training.path
        _run(me, _with_task(config))
    except KeyboardInterrupt:
        os._exit(130)
    except Exception as error:  # noqa: BLE001  # each ends the program; what it says differs
        end(error, me, folder)


def _with_task(config: Config) -> Config:
    """The causal sets' task, unless the configuration describes or names another."""
    if config.task is None and not (config.model or config.data or config.criterion):
        return msgspec.structs.replace(config, task=TASK)
    return config


def _run(me: RankEnv, config: Config) -> None:
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
        trainer = TrainerDDP(me.rank, config)
        train, validation, test = trainer.prepare_dataloaders()
        trainer.run_training(train, validation)
        if me.rank == 0:
            _report(trainer, train.dataset.dataset, test)  # type: ignore[attr-defined]
    except StoppedEarly:  # all ranks, together
        cleanup_ddp()
        raise
    cleanup_ddp()  # not after an error: the others may be waiting for this rank, and it for them


def _report(trainer: TrainerDDP, train: Any, loader: Any) -> None:
    """Test the best model, and print and draw what it is worth."""
    test = loader.dataset.dataset
    measures = trainer.run_test(loader)
    lines: dict[str, float | None] = {}
    if isinstance(trainer.task, CausetTask) and isinstance(train, Causets) and isinstance(test, Causets):
        line = linear_error(train, test)
        print(table(measures, line), flush=True)
        if "dimension_error" in measures:
            lines = {"Myrheim-Meyer": measures["estimator_error"], "linear fit": line}
    else:
        print(plain_table(measures), flush=True)
    _draw(trainer, {name: value for name, value in lines.items() if value is not None})


def _draw(trainer: TrainerDDP, lines: dict[str, float]) -> None:
    try:
        from trainers.curves import draw

        picture = trainer.folder / "curves.png"
        draw(trainer.metrics.path, picture, lines)
        print(f"curves in {picture}", flush=True)
    except ModuleNotFoundError as error:
        logging.getLogger(__name__).warning("no picture of the curves: %s", error)
