"""The training systems, tiny: what each trains on two ranks in a second or two.

A new system is one more entry.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from trainers.core.config import Config


class System(NamedTuple):
    """A training system, and a training that is small enough for a test."""

    name: str
    """As `castoff train` has it; `trainers.NAME` is its package."""
    config: str
    """The YAML of its configuration; FOLDER is where it trains."""
    load: Callable[[Path], Config]
    """What a file with that becomes."""
    train: Callable[[Config], None]
    """Trains that on this rank."""

    @property
    def module(self) -> str:
        """The program."""
        return f"trainers.{self.name}"


def _train_causets(config: Config) -> None:
    from trainers.gnn.training import train

    train(config)


GNN = System(
    name="gnn",
    config="""\
name: causets
training:
  path: FOLDER
  run: trained
  seed: 5
  num_epochs: 3
  batch_size: 8
  device: cpu
  optimizer_type: !pyobject torch.optim.AdamW
  optimizer_kwargs: {lr: 0.01}
  ema_decay: 0.9
  log_every: 1
task: !pyobject trainers.gnn.task.CausetTask
task_kwargs: {sets: [128, 16, 16], mean: 12, model: {hidden: [8, 8]}}
""",
    load=Config.load,
    train=_train_causets,
)

SYSTEMS = {system.name: system for system in (GNN,)}
