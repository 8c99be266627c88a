"""The model that a training leaves: the same on all ranks, and the best that was saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from castoff.trainers.checkpointing.checkpoints import Checkpoints, load_part
from castoff.trainers.checkpointing.errors import CheckpointError
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed.process_group import cleanup_ddp
from castoff.trainers.program.training import train
from castoff.trainers.task import Loss
from tests.trainers.optimization.test_weights import met
from tests.trainers.toys import Toy, config, digest, run


class Worsens(Toy):
    """Is best after its first epoch."""

    def build_model(self) -> nn.Module:
        layer = nn.Conv2d(1, 2, 2)
        return nn.Sequential(nn.Unflatten(1, (1, 2, 4)), layer.to(memory_format=torch.channels_last))  # type: ignore[call-overload]

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        return Loss((model(batch[0]) ** 2).sum())

    def evaluate(self, model: nn.Module, batch: Any) -> Any:
        return {"loss": (float(self.state.epoch + 1), 1)}


def what_is_left(folder: Path) -> tuple[str, str, bool]:
    """Digests of the model and of its average, and whether this rank has tested it."""
    trained = train(config(folder, ema_decay=0.9), Worsens())
    made = trained.trainer
    return digest(made.model), digest(made.engine.judged), trained.metrics is not None


def said_of_a_damaged_one(folder: Path) -> str:
    trainer = TrainerDDP(met().rank, config(folder, num_epochs=1), Worsens())
    trainer.run_training(*trainer.prepare_dataloaders()[:2])
    if trainer.context.is_main:
        best = trainer.checkpoints.best()
        assert best is not None
        (best / "model.pt").write_bytes(b"damaged")
    with pytest.raises(CheckpointError) as error:
        trainer.take_best()
    cleanup_ddp()
    return str(error.value)


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_every_rank_has_the_best_model(world_size: int, tmp_path: Path) -> None:
    answers = run(what_is_left, tmp_path / "out", folder=tmp_path / "ranks", world_size=world_size)
    best = Checkpoints(tmp_path / "out" / "toy" / "checkpoints").best()
    newest = Checkpoints(tmp_path / "out" / "toy" / "checkpoints").newest()
    assert best is not None and newest is not None and best != newest
    wanted = [_digest_of(load_part(best, part)) for part in ("model", "ema")]
    for rank, (model, average, tested) in enumerate(answers):
        assert [model, average] == wanted
        assert tested is (rank == 0)


@pytest.mark.usefixtures("for_real")
def test_a_damaged_best_is_reported_on_every_rank(tmp_path: Path) -> None:
    answers = run(said_of_a_damaged_one, tmp_path / "out", folder=tmp_path / "ranks", world_size=2)
    assert all("the best checkpoint" in said and "is damaged" in said for said in answers)


def _digest_of(weights: dict[str, Any]) -> str:
    model = Worsens().build_model()
    model.load_state_dict(weights)
    return digest(model)
