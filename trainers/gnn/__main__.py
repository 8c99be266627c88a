"""Train the causal set network: `castoff train gnn CONFIG`, or `python -m trainers.gnn CONFIG`."""

from __future__ import annotations

import argparse
import logging
import sys

import msgspec

from launcher.ranks import RankEnv
from trainers.config import Config, ConfigError, PyObject
from trainers.ddp import TrainerDDP, cleanup_ddp, initialize_ddp
from trainers.gnn.report import linear_error, table
from trainers.logs import setup_logging

TASK = PyObject("trainers.gnn.task.CausetTask")


def main() -> None:
    """Read the configuration, train on this rank, and report on rank 0."""
    parser = argparse.ArgumentParser(prog="castoff train gnn", description=__doc__)
    parser.add_argument("config", help="YAML of the training run")
    parser.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", help="as training.num_epochs=3"
    )
    arguments = parser.parse_args()
    try:
        config = Config.load(arguments.config, arguments.set)
        if config.task is None:
            config = msgspec.structs.replace(config, task=TASK)
        run(config)
    except ConfigError as error:
        sys.exit(f"castoff train: {error}")


def run(config: Config) -> None:
    """Train and report; on every rank."""
    me = RankEnv.detect()
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
            measures = trainer.run_test(test)
            line = linear_error(train.dataset.dataset, test.dataset.dataset)  # type: ignore[attr-defined]
            print(table(measures, line), flush=True)
            _draw(trainer, {"Myrheim-Meyer": measures["estimator_error"], "linear fit": line})
    finally:
        cleanup_ddp()


def _draw(trainer: TrainerDDP, lines: dict[str, float]) -> None:
    try:
        from trainers.curves import draw

        picture = trainer.folder / "curves.png"
        draw(trainer.metrics.path, picture, lines)
        print(f"curves in {picture}", flush=True)
    except ModuleNotFoundError as error:
        logging.getLogger(__name__).warning("no picture of the curves: %s", error)


if __name__ == "__main__":
    main()
