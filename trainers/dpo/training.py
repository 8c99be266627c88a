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
    """Train what a configuration says, and show the test's metrics on rank 0.

    Raises:
        ConfigError, DistributedError, CheckpointError, OSError: it cannot, and why.
    """
    _check_folder(config)
    trained = program.train(config, reports=EpochReports)
    if trained.metrics:
        print(aligned({f"test {name}": value for name, value in trained.metrics.items()}), flush=True)


_MODELS = re.compile(r"(best_model|latest_model|checkpoint_epoch_\d+)\.pt")
"""Files that a training writes into its folder for others to read."""


def _check_folder(config: Config) -> None:
    """See that it can be a folder, and that nobody else's models are written over.

    Raises:
        ConfigError: a file is in its place; or it holds models, and no training of castoff's has made it.
    """
    folder = expanded(config.training.path, "training.path") / run_name(config, os.environ)
    there = next(each for each in (folder, *folder.absolute().parents) if os.path.lexists(each))
    if not there.is_dir():
        raise ConfigError(
            [f"training.run (--output_dir): is {folder}, but {there} is not a folder; name another place"]
        )
    if config.training.fresh or not folder.is_dir() or (folder / "run.json").exists():
        return
    found = sorted(each.name for each in folder.iterdir() if _MODELS.fullmatch(each.name))
    if found:
        raise ConfigError(
            [
                f"training.run (--output_dir): {folder} holds {', '.join(found[:3])}, which would be written "
                "over here, and no training of castoff's has made that folder; name another one, or have it "
                f"set aside as {folder.name}.1 with --fresh"
            ]
        )
