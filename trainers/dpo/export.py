"""A run's model for other programs: files in ProteinMPNN's format, in the run's folder."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from torch import nn

from castoff.trainers.dpo.network.model import InverseFolding
from castoff.trainers.dpo.network.weights import save
from castoff.trainers.task.training_state import TrainingState

LATEST, BEST = "latest_model.pt", "best_model.pt"


def epoch_file(epoch: int) -> str:
    """The name of the file with the model after `epoch` epochs."""
    return f"checkpoint_epoch_{epoch}.pt"


def export(model: nn.Module, noise_level: float, folder: Path, state: TrainingState, *, better: bool) -> None:
    """Write a run's model; each file is replaced as a whole.

    The files are the latest model; the model of an epoch, if one has just ended; and the best model, if it is
    `better` than all before.

    Raises:
        OSError: a file cannot be written.
    """
    ended = [epoch_file(state.epoch)] if state.epoch and not state.consumed else []
    for name in (*ended, *([BEST] if better else []), LATEST):
        save(folder / name, cast("InverseFolding", model), noise_level)
