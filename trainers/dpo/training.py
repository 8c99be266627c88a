"""A training from start to end, with its final evaluation."""

from __future__ import annotations

import os
import re

from castoff.trainers.checkpointing.run_folder import run_name
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.paths import expanded
from castoff.trainers.dpo.reports import EpochReports
from castoff.trainers.program import training as program
from castoff.trainers.reporting.table import aligned


def train(config: Config) -> None:
    """Train a configuration, and print the test's metrics on rank 0.

    Raises:
        ConfigError, DistributedError, CheckpointError, OSError: the training failed; the message says why.
    """
    _check_folder(config)
    trained = program.train(config, reports=EpochReports)
    if trained.metrics:
        print(aligned({f"test {name}": value for name, value in trained.metrics.items()}), flush=True)


_MODELS = re.compile(r"(best_model|latest_model|checkpoint_epoch_\d+)\.pt")
"""Models that a training writes into its folder for other programs."""


def _check_folder(config: Config) -> None:
    """Check that the run's folder can be made, and that no other program's models would be overwritten.

    Raises:
        ConfigError: a file is in the way; or the folder holds models, and no training of castoff's has made
            it.
    """
    folder = expanded(config.training.path, "training.path") / run_name(config, os.environ)
    existing = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if not existing.is_dir():
        raise ConfigError(
            [f"training.run (--output_dir): is {folder}, but {existing} is not a folder; name another one"]
        )
    if config.training.fresh or not folder.is_dir() or (folder / "run.json").exists():
        return
    models = sorted(path.name for path in folder.iterdir() if _MODELS.fullmatch(path.name))
    if models:
        raise ConfigError(
            [
                f"training.run (--output_dir): {folder} holds {', '.join(models[:3])}, which would be "
                "overwritten, and the folder was not made by a castoff training; name another one, or "
                f"use --fresh to rename it to {folder.name}.1"
            ]
        )
