"""Data sets with a length are told the epoch, as streams are."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset

from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.task import Loss, Splits
from tests.trainers.toys import Toy, config, digest

KEPT = {"num_workers": 1, "persistent_workers": True}


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
    trainer, loaders = made(path, task, **training)
    trainer.run_training(*loaders[:2])
    return digest(trainer.model)


def made(path: Path, task: Follows, **training: Any) -> tuple[TrainerDDP, Any]:
    fields = config(path, **{"check_first_step": False, "num_epochs": 2, **training})
    workers = {name: value for name, value in training.items() if "workers" in name}
    fields["validation"] = {"every_steps": 2, **workers}
    fields["testing"] = {**workers}
    trainer = TrainerDDP(0, fields, task)
    return trainer, trainer.prepare_dataloaders()


@pytest.mark.parametrize("kind", [Curriculum, Unhashable])
@pytest.mark.parametrize("workers", [{}, KEPT])
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


def test_no_worker_outlives_a_training_or_a_test(tmp_path: Path) -> None:
    """Nor do loaders that have been closed refuse another pass."""
    before = set(multiprocessing.active_children())
    trainer, (train, validation, test) = made(tmp_path, Follows(Curriculum()), **KEPT)
    trainer.run_training(train, validation)
    assert set(multiprocessing.active_children()) <= before
    trainer.run_test(test)
    assert set(multiprocessing.active_children()) <= before
    assert len(list(train.groups(2, 0))) == 3
    train.close()


class Fails(Follows):
    """Fails in the second epoch."""

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        if batch[1].max() == 1:
            raise ZeroDivisionError
        return super().loss(model, batch)


def test_no_worker_outlives_a_training_that_fails(tmp_path: Path) -> None:
    before = set(multiprocessing.active_children())
    with pytest.raises(ZeroDivisionError):
        trained(tmp_path, Fails(Curriculum()), **KEPT)
    assert set(multiprocessing.active_children()) <= before
