"""A training from start to end, with its final evaluation."""

from __future__ import annotations

from castoff.trainers.configuration.config import Config
from castoff.trainers.gnn.defaults import CRITERION
from castoff.trainers.gnn.report import Report, report
from castoff.trainers.gnn.task import GraphTask
from castoff.trainers.gnn.trainer import GraphTrainer
from castoff.trainers.program import training as program
from castoff.trainers.reporting.curves import draw_curves
from castoff.trainers.reporting.table import aligned


def train(config: Config) -> None:
    """Train a configuration, and report on rank 0.

    If causal sets were generated, the report compares the network with estimators and forests.

    Raises:
        ConfigError, DistributedError, CheckpointError, OSError: the training failed; the message says why.
    """
    trained = program.train(config, trainer=GraphTrainer)
    if trained.metrics is None:
        return
    print(aligned({f"test {name}": value for name, value in trained.metrics.items()}), flush=True)
    compared = _compared(trained)
    if compared is not None:
        print(f"\n{compared.text}", flush=True)
        draw_curves(trained.trainer.folder, compared.lines)


def _compared(trained: program.Trained) -> Report | None:
    """Compare the network with baselines; None if no sets were generated, or a custom criterion is used."""
    trainer, splits = trained.trainer, trained.splits
    task = trainer.task
    if not isinstance(task, GraphTask) or "causets" not in task.config.data:
        return None
    if task.config.criterion != CRITERION:
        return None
    return report(task.apply, trainer.engine.judged, splits.train, splits.test, trainer.context.device)
