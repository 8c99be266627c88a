"""Data sets with a length are told the epoch, as streams are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset

from tests.trainers.toys import Toy, config, digest
from trainers.ddp import TrainerDDP
from trainers.task import Loss, Splits


class Curriculum(Dataset[Any]):
    """Gives the epoch that it was told last."""

    def __init__(self) -> None:
        self.epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return torch.full((8,), float(index + self.epoch)), torch.tensor([float(self.epoch)])


class Unhashable(Curriculum):
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return False


class Follows(Toy):
    """Trains on a part of a set, and validates with the other."""

    def __init__(self, dataset: Curriculum):
        super().__init__(dropout=0.0)
        self.dataset = dataset
        self.trained: list[set[float]] = []
        self.judged: list[set[float]] = []

    def build_data(self) -> Splits:
        return Splits(Subset(Subset(self.dataset, range(28)), range(24)), Subset(self.dataset, range(24, 32)))

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        (self.trained if model.training else self.judged).append(set(batch[1].flatten().tolist()))
        return super().loss(model, batch)


def trained(path: Path, task: Follows, **training: Any) -> str:
    fields = config(path, **{"check_first_step": False, "num_epochs": 2, **training})
    fields["validation"] = {"every_steps": 2}
    trainer = TrainerDDP(0, fields, task)
    trainer.run_training(*trainer.prepare_dataloaders()[:2])
    return digest(trainer.model)


@pytest.mark.parametrize("kind", [Curriculum, Unhashable])
@pytest.mark.parametrize("workers", [{}, {"num_workers": 1, "persistent_workers": True}])
def test_each_epoch_is_told(kind: type[Curriculum], workers: dict[str, Any], tmp_path: Path) -> None:
    """Though a validation in between reads the same set, in the same process."""
    task = Follows(kind())
    trained(tmp_path, task, **workers)
    assert task.trained == [{0.0}] * 3 + [{1.0}] * 3
    assert len(task.judged) > 2 and all(each == {0.0} for each in task.judged)


def test_a_resumed_run_is_told_the_same(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", Follows(Curriculum()), num_epochs=3, check_first_step=True)
    trained(tmp_path / "parts", Follows(Curriculum()), num_epochs=1, check_first_step=True)
    assert trained(tmp_path / "parts", Follows(Curriculum()), num_epochs=3, check_first_step=True) == whole
