"""A training from beginning to end, with what it was worth at the end."""

from __future__ import annotations

from trainers import program
from trainers.core.config import Config
from trainers.core.table import aligned
from trainers.gnn.ddp import TrainerDDP


def train(config: Config) -> None:
    """Train what a configuration says, and report on rank 0.

    Raises:
        ConfigError, DistributedError, CheckpointError, OSError: it cannot, and why.
    """
    trained = program.train(config, trainer=TrainerDDP)
    if trained.measures is not None:
        print(aligned({f"test {name}": value for name, value in trained.measures.items()}), flush=True)
