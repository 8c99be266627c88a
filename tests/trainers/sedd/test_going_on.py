"""Training proteins on several ranks: the same on any number of them, and after a kill, bit for bit."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from castoff.launcher.ranks import RankEnv
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed.process_group import cleanup_ddp, initialize_ddp
from castoff.trainers.sedd.data import ProteinBatch
from castoff.trainers.sedd.task import SeddTask
from castoff.trainers.task import Loss
from tests.trainers.toys import Ranks, digest, lasting_lines, run

pytestmark = pytest.mark.usefixtures("for_real")

TASK: dict[str, Any] = {
    "data": {"synthetic": 60, "split": [0.8, 0.1, 0.1]},
    "model": {"hidden_size": 16, "n_blocks": 1, "n_heads": 2, "cond_dim": 8, "dropout": 0.1},
    "curriculum": {"enabled": True, "preschool_time": 8},
    "memory": {"gradient_checkpointing": True},
}


def fields(path: Path, **training: Any) -> dict[str, Any]:
    return {
        "name": "sedd",
        "training": {
            "path": str(path),
            "num_steps": 9,
            "batch_size": 4,
            "device": "cpu",
            "optimizer_type": torch.optim.AdamW,
            "optimizer_kwargs": {"lr": 0.01},
            "log_every": 1,
            "checkpoint_every_steps": 2,
            "ema_decay": 0.9,
            **training,
        },
        "validation": {"every_steps": 3},
    }


class Dies(SeddTask):
    """Of SIGKILL, on rank 0 at its n-th loss of training."""

    at = 0
    seen = 0

    def loss(self, model: nn.Module, batch: ProteinBatch) -> Loss:
        self.seen += 1
        if self.seen == self.at and self.state.rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().loss(model, batch)


Ended = tuple[str, str, list[dict[str, Any]]]


def trained(sections: Mapping[str, Any], given: dict[str, Any], dies_at: int = 0) -> Ended:
    """Train; the weights, the averaged ones, and the lines of the log."""
    me, task = RankEnv.detect(), Dies(**sections)
    task.at = dies_at
    initialize_ddp(me.rank, me.world_size, backend="gloo", device="cpu")
    trainer = TrainerDDP(me.rank, given, task)
    train, validation, _ = trainer.prepare_dataloaders()
    trainer.run_training(train, validation)
    ended = digest(trainer.model), digest(trainer.engine.judged), lasting_lines(trainer.folder)
    cleanup_ddp()
    return ended


@pytest.mark.parametrize(
    ("world_size", "training"),
    [
        pytest.param(2, {"precision": "bf16"}, marks=pytest.mark.long),
        (3, {"num_workers": 1, "batch_size": 2}),
        pytest.param(2, {"compile": True}, marks=pytest.mark.long),
    ],
)
def test_killed_and_gone_on(world_size: int, training: dict[str, Any], tmp_path: Path) -> None:
    uninterrupted = Ranks(tmp_path / "one", world_size)  # meanwhile
    uninterrupted.start(trained, TASK, fields(tmp_path / "whole", **training))
    given = fields(tmp_path / "killed", **training)
    ranks = Ranks(tmp_path / "first", world_size)
    ranks.start(trained, TASK, given, 6)
    assert -signal.SIGKILL in ranks.end()
    answers = run(trained, TASK, given, folder=tmp_path / "second", world_size=world_size)
    assert answers == uninterrupted.answers()
    weights, averaged, lines = answers[0]
    assert weights != averaged and len({weights for weights, _, _ in answers}) == 1
    assert [line["step"] for line in lines if "val/loss" in line] == [3, 6, 9]


def test_two_ranks_train_as_one_does(tmp_path: Path) -> None:
    """The same noise on the same proteins: the same losses to rounding, though each sees another half."""
    sections = {**TASK, "model": {**TASK["model"], "dropout": 0.0}}
    given = {ranks: fields(tmp_path / str(ranks), batch_size=8 // ranks) for ranks in (1, 2)}
    one, two = (
        run(trained, sections, given[ranks], folder=tmp_path / f"ranks{ranks}", world_size=ranks)[0][2]
        for ranks in (1, 2)
    )
    for name in ("train/loss", "val/loss", "val/perplexity"):
        mine, theirs = ([line[name] for line in lines if name in line] for lines in (one, two))
        assert len(mine) >= 3 and mine == pytest.approx(theirs, rel=1e-4)
