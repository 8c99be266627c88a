"""A training from start to end, with its final evaluation."""

from __future__ import annotations

from castoff.trainers.configuration.config import Config
from castoff.trainers.program import training as program
from castoff.trainers.reporting.table import aligned


def train(config: Config) -> None:
    """Train a configuration, and print the test's metrics on rank 0.

    Raises:
        ConfigError, DistributedError, CheckpointError, OSError: the training failed; the message says why.
    """
    trained = program.train(config)
    if trained.metrics:
        print(aligned({f"test {name}": value for name, value in trained.metrics.items()}), flush=True)
