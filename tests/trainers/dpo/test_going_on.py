"""Learning preferences on several ranks: the same on any number of them, and after a kill, bit for bit."""

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
from castoff.trainers.dpo.export import BEST, LATEST
from castoff.trainers.dpo.likelihood import LikelihoodTask
from castoff.trainers.dpo.network.weights import load
from castoff.trainers.dpo.task import DpoTask
from castoff.trainers.task import Loss, Task
from tests.trainers.dpo.small import dpo_sections, likelihood_sections
from tests.trainers.toys import Ranks, digest, lasting_lines, run

pytestmark = pytest.mark.usefixtures("for_real")


def fields(path: Path, **training: Any) -> dict[str, Any]:
    return {
        "name": "dpo",
        "training": {
            "path": str(path.parent),
            "run": path.name,
            "num_epochs": 3,
            "batch_size": 4,
            "device": "cpu",
            "optimizer_type": torch.optim.AdamW,
            "optimizer_kwargs": {"lr": 0.003},
            "log_every": 1,
            "checkpoint_every_steps": 2,
            **training,
        },
    }


class Dies:
    """Of SIGKILL, on rank 0 at its n-th loss of training."""

    at = 0
    seen = 0
    state: Any

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        self.seen += 1
        if self.seen == self.at and self.state.rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        given: Loss = super().loss(model, batch)  # type: ignore[misc]
        return given


class Dpo(Dies, DpoTask):
    pass


class Likelihood(Dies, LikelihoodTask):
    pass


Ended = tuple[str, list[dict[str, Any]], dict[str, bytes]]


def trained(make: type[Dies], sections: Mapping[str, Any], given: dict[str, Any], dies_at: int = 0) -> Ended:
    """Train; the weights, the lines of the log, and the models that were written for others."""
    me, task = RankEnv.detect(), make(**sections)
    task.at = dies_at
    initialize_ddp(me.rank, me.world_size, backend="gloo", device="cpu")
    assert isinstance(task, Task)
    trainer = TrainerDDP(me.rank, given, task)
    train, validation, _ = trainer.prepare_dataloaders()
    trainer.run_training(train, validation)
    models = {path.name: path.read_bytes() for path in trainer.folder.glob("*.pt")}
    ended = digest(trainer.model), lasting_lines(trainer.folder), models
    cleanup_ddp()
    return ended


@pytest.mark.parametrize(
    ("world_size", "training", "order"),
    [
        pytest.param(1, {}, "fixed", marks=pytest.mark.long),
        pytest.param(2, {"precision": "bf16"}, "fixed", marks=pytest.mark.long),
        (3, {"num_workers": 1}, "epoch"),
        pytest.param(2, {"gradient_accumulation_steps": 2, "num_epochs": 6}, "fixed", marks=pytest.mark.long),
    ],
)
def test_killed_and_gone_on(world_size: int, training: dict[str, Any], order: str, tmp_path: Path) -> None:
    """Also where the kept log-probabilities are gone, of which each run then makes its own."""
    sections = dpo_sections(
        tmp_path, 19, preference={"decoding_order": order}
    )  # 15 are trained on, 4 validated with: no number of ranks divides both
    uninterrupted = Ranks(tmp_path / "one", world_size)  # meanwhile
    uninterrupted.start(trained, Dpo, sections, fields(tmp_path / "whole", **training))
    given = fields(tmp_path / "killed", **training)
    epochs = given["training"]["num_epochs"]
    ranks = Ranks(tmp_path / "first", world_size)
    ranks.start(trained, Dpo, sections, given, 6)
    assert -signal.SIGKILL in ranks.end()
    wanted = uninterrupted.answers()
    (kept,) = tmp_path.glob("*.reference")
    kept.unlink()
    answers = run(trained, Dpo, sections, given, folder=tmp_path / "second", world_size=world_size)
    assert answers == wanted
    weights, lines, models = answers[0]
    assert len({weights for weights, _, _ in answers}) == 1
    assert set(models) == {LATEST, BEST, *(f"checkpoint_epoch_{number + 1}.pt" for number in range(epochs))}
    assert digest(load(tmp_path / "killed" / LATEST).model) == weights
    assert sum("val/rewards/accuracies" in line for line in lines) == epochs


def test_pretraining_killed_and_gone_on(tmp_path: Path) -> None:
    sections = likelihood_sections(tmp_path, 13)
    whole, killed = fields(tmp_path / "whole"), fields(tmp_path / "killed")
    uninterrupted = Ranks(tmp_path / "one", 2)
    uninterrupted.start(trained, Likelihood, sections, whole)
    ranks = Ranks(tmp_path / "first", 2)
    ranks.start(trained, Likelihood, sections, killed, 4)
    assert -signal.SIGKILL in ranks.end()
    answers = run(trained, Likelihood, sections, killed, folder=tmp_path / "second", world_size=2)
    assert answers == uninterrupted.answers()
    _, lines, models = answers[0]
    assert len(models) == 5
    validated = [line for line in lines if "val/loss" in line]
    assert len(validated) == 3
    for line in validated:
        assert {"val/perplexity", "val/accuracy/teacher_forced", "recovery/sampled"} <= set(line)


@pytest.mark.parametrize("make", [Dpo, Likelihood])
def test_two_ranks_train_as_one_does(make: type[Dies], tmp_path: Path) -> None:
    """To rounding, though each sees another half, of unlike lengths, and of another number of pairs."""
    sections = dpo_sections(tmp_path, 19)
    if make is Likelihood:
        sections = likelihood_sections(tmp_path, 19, model={"dropout": 0.0})
    # Adam makes steps of rounding, where a gradient is nothing else.
    how = {"optimizer_type": torch.optim.SGD, "optimizer_kwargs": {"lr": 0.002}}
    one, two = (
        run(
            *(trained, make, sections, fields(tmp_path / f"run{ranks}", batch_size=8 // ranks, **how)),
            folder=tmp_path / f"ranks{ranks}",
            world_size=ranks,
        )[0][1]
        for ranks in (1, 2)
    )
    names = {name for line in one for name in line if name.startswith(("train/", "val/"))} - {"train/epoch"}
    assert {"train/loss", "val/loss"} < names
    for name in names:
        mine, theirs = ([line[name] for line in lines if name in line] for lines in (one, two))
        assert len(mine) >= 3 and mine == pytest.approx(theirs, rel=1e-4, abs=1e-4), name


def test_no_checkpoint_holds_the_reference(tmp_path: Path) -> None:
    """The policy's weights, and of what it is compared with three words."""
    run(
        *(trained, Dpo, dpo_sections(tmp_path), fields(tmp_path / "run")),
        folder=tmp_path / "ranks",
        world_size=1,
    )
    (newest, *_) = sorted((tmp_path / "run" / "checkpoints").glob("step-*"), reverse=True)
    base = load(tmp_path / "base.pt").model.state_dict()
    model = torch.load(newest / "model.pt", weights_only=True)
    rest = torch.load(newest / "training.pt", weights_only=True)

    def tensors(part: Any) -> list[torch.Tensor]:
        if isinstance(part, torch.Tensor):
            return [part]
        values = part.values() if isinstance(part, dict) else part if isinstance(part, (list, tuple)) else []
        return [tensor for value in values for tensor in tensors(value)]

    assert sum(each.numel() for each in tensors(model)) == sum(each.numel() for each in base.values())
    learned = {name: value for name, value in base.items() if value.numel() > 1}
    for name, value in learned.items():
        for each in tensors([model, rest]):
            assert each.shape != value.shape or not torch.equal(each, value), name
    assert not tensors(rest["task"])
    (of_task,) = rest["task"]
    assert set(of_task["digests"]) == {"train", "validation", "base_model"}
