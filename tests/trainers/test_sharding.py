"""Trainings with sharded weights: validations, checkpoints, and what is left at the end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed.process_group import cleanup_ddp, initialize_ddp
from tests.trainers.rounding import assert_rounded
from tests.trainers.toys import Toy, config, digest, lasting_lines, run

pytestmark = pytest.mark.usefixtures("for_real")

SGD = {"optimizer_type": torch.optim.SGD, "optimizer_kwargs": {"lr": 0.01, "momentum": 0.9}}


class Kept(Toy):
    """Notes what an export and an evaluation get."""

    exported: list[str]

    def build_model(self) -> nn.Module:
        self.exported = []
        return super().build_model()

    def export(self, model: nn.Module, folder: Path, *, better: bool) -> None:
        assert not model.training
        self.exported.append(digest(model))


def fields(path: Path, strategy: str, epochs: int, **training: Any) -> dict[str, Any]:
    options = {**SGD, "num_epochs": epochs, "ema_decay": 0.9, "log_every": 5, **training}
    monitoring = {"log_gradients": True, "log_weights": True}
    made = config(path, **options)
    return {**made, "parallel": {"strategy": strategy}, "monitoring": monitoring}


def train(given: dict[str, Any]) -> dict[str, Any]:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    context = initialize_ddp(rank, size, device="cpu")
    task = Kept(dropout=0.0)
    trainer = TrainerDDP(rank, given, task)
    training, validation, test = trainer.prepare_dataloaders()
    trainer.run_training(training, validation)
    last = [each.detach() for each in trainer.model.parameters()]
    alone = dict(trainer.run_test(test)) if rank == size - 1 else {}
    context.barrier("the test of one rank alone")
    trainer.take_best()
    cleanup_ddp()
    return {
        "last": last,
        "best": digest(trainer.engine.judged),
        "alone": alone,
        "tested": dict(trainer.run_test(test)),
        "validated": trainer.val_data,
        "exported": task.exported,
        "lines": lasting_lines(trainer.folder) if rank == 0 else [],
    }


def test_a_training_is_that_of_ddp(tmp_path: Path) -> None:
    """Its validations, its metrics, and the test that one rank makes alone, to rounding."""
    sharded = run(train, fields(tmp_path / "fsdp", "fsdp", 2), folder=tmp_path / "one", world_size=2)
    whole = run(train, fields(tmp_path / "ddp", "ddp", 2), folder=tmp_path / "two", world_size=2)
    for mine, theirs in zip(sharded, whole, strict=True):
        for one, other in zip(mine["last"], theirs["last"], strict=True):
            assert_rounded(one, other)
        for name in ("validated", "lines", "alone", "tested"):
            _alike(mine[name], theirs[name])
    first, last = sharded
    assert first["best"] == last["best"]
    assert first["tested"] == last["alone"] == last["tested"]
    assert len(first["exported"]) == 2
    assert last["exported"] == []


def _alike(mine: Any, theirs: Any) -> None:
    if isinstance(mine, dict):
        assert mine.keys() == theirs.keys()
        for name, value in mine.items():
            _alike(value, theirs[name])
    elif isinstance(mine, list):
        for one, other in zip(mine, theirs, strict=True):
            _alike(one, other)
    elif isinstance(mine, float):
        assert mine == pytest.approx(theirs, rel=1e-3, nan_ok=True)
    else:
        assert mine == theirs


def test_a_run_may_change_its_strategy(tmp_path: Path) -> None:
    """And the number of its ranks."""
    for epochs, (strategy, size) in enumerate([("ddp", 2), ("fsdp", 4), ("ddp", 2)], start=1):
        path, micros = tmp_path / "both", 4 // size
        given = fields(path, strategy, epochs, batch_size=4, gradient_accumulation_steps=micros)
        answers = run(train, given, folder=tmp_path / strategy, world_size=size)
    given = fields(tmp_path / "ddp", "ddp", 3, batch_size=4, gradient_accumulation_steps=2)
    (whole, _) = run(train, given, folder=tmp_path / "whole", world_size=2)
    for mine, theirs in zip(answers[0]["last"], whole["last"], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3)
