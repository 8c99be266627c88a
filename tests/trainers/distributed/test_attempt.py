"""What rank 0 reads and writes of its attempt: that it is over, and how far the training is."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from castoff.launcher.ranks import RankEnv
from castoff.trainers.checkpointing.checkpoints import Checkpoints
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed import failures, watchdog
from castoff.trainers.distributed.attempt import Attempt, AttemptOver
from castoff.trainers.distributed.failures import reported
from castoff.trainers.task import Loss
from tests.cases import others_long
from tests.trainers.toys import Ranks, Sensitive, Toy, config, train


def progress(path: Path) -> int:
    """The first line, which the script reads."""
    return int(path.read_text().splitlines()[0])


def test_outside_a_run_nothing_is_read_or_written() -> None:
    attempt = Attempt({})
    attempt.check()
    attempt.record_progress(3)
    assert not attempt.has_ended(0)


def test_progress_never_falls_and_each_report_differs(tmp_path: Path) -> None:
    """A checkpoint becomes durable while training continues."""
    path = tmp_path / "progress"
    attempt = Attempt({"CASTOFF_PROGRESS_FILE": str(path)})
    attempt.record_progress(7)
    first = path.read_text()
    attempt.record_progress(5)
    second = path.read_text()
    assert progress(path) == 7 and second != first and len(second) == len(first)


def test_nobody_finds_an_empty_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor one that is made before there is something in it."""
    path = tmp_path / "progress"
    attempt = Attempt({"CASTOFF_PROGRESS_FILE": str(path)})
    found: list[str] = []

    opened = os.open

    def open_and_look(*arguments: Any, **named: Any) -> int:
        descriptor = opened(*arguments, **named)
        if path.exists():
            found.append(path.read_text())
        return descriptor

    monkeypatch.setattr(os, "open", open_and_look)
    attempt.record_progress(1)
    attempt.record_progress(2)
    assert {text.split()[0] for text in found} == {"1"}
    assert list(tmp_path.iterdir()) == [path]


def test_progress_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    Attempt({"CASTOFF_PROGRESS_FILE": str(tmp_path / "gone" / "progress")}).record_progress(1)


def test_other_attempts_of_the_member(tmp_path: Path) -> None:
    (tmp_path / "2.0").mkdir()
    (tmp_path / "2.0" / "ending.json").touch()
    attempt = Attempt({"CASTOFF_ATTEMPT_DIR": str(tmp_path / "2.1"), "CASTOFF_ARRAY_INDEX": "2"})
    assert attempt.has_ended(0) and not attempt.has_ended(1)


class Ending(Toy):
    """Its attempt's ending is recorded at its third step."""

    ending: Path
    losses = 0

    def loss(self, model: nn.Module, batch: torch.Tensor) -> Loss:
        self.losses += model.training
        if self.losses == 3:
            self.ending.touch()
        return super().loss(model, batch)


def test_progress_of_a_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the first look, with each checkpoint that is durable, and at the end."""
    monkeypatch.setattr("castoff.trainers.distributed.requests._LOOK_EVERY", float("inf"))
    steps: list[int] = []
    monkeypatch.setattr(Attempt, "record_progress", lambda _, step: steps.append(step))
    fields = config(tmp_path, num_epochs=None, num_steps=5, checkpoint_every_steps=2)
    trainer = TrainerDDP(0, fields, Toy())
    training, validation, _ = trainer.prepare_dataloaders()
    trainer.run_training(training, validation)
    assert steps == [0, 2, 4, 5, 5]


def test_it_is_looked_at_with_the_stop_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any checkpoint."""
    monkeypatch.setenv("CASTOFF_ATTEMPT_DIR", str(tmp_path))
    monkeypatch.setenv("CASTOFF_PROGRESS_FILE", str(tmp_path / "progress"))
    monkeypatch.setattr("castoff.trainers.distributed.requests._LOOK_EVERY", 0.0)
    task = Ending()
    task.ending = tmp_path / "ending.json"
    trainer = TrainerDDP(0, config(tmp_path / "out"), task)
    training, validation, _ = trainer.prepare_dataloaders()
    with pytest.raises(AttemptOver, match=r"this attempt is over, according to .*/ending\.json"):
        trainer.run_training(training, validation)
    assert trainer.step == 3 and progress(tmp_path / "progress") == 2
    assert not trainer.checkpoints.all()


def test_no_checkpoint_becomes_current(tmp_path: Path) -> None:
    """The ending is recorded while it is written, and what is there stays."""
    attempt = Attempt({"CASTOFF_ATTEMPT_DIR": str(tmp_path)})
    looks = 0

    def check() -> None:
        nonlocal looks
        looks += 1
        if looks == 4:  # twice for each
            (tmp_path / "ending.json").touch()
        attempt.check()

    checkpoints = Checkpoints(tmp_path / "checkpoints", check=check)
    parts = {"model": {"weight": torch.zeros(1)}}
    checkpoints.save(1, parts)
    checkpoints.save(2, parts)
    with pytest.raises(AttemptOver):
        checkpoints.wait()
    assert [path.name for path in checkpoints.all()] == ["step-0000000001"]
    checkpoints.record(1, {"better": True})
    with pytest.raises(AttemptOver):
        checkpoints.wait()
    assert checkpoints.record_of(checkpoints.path(1)) is None


def train_reported(fields: dict[str, Any]) -> None:
    """As `castoff train` does, but that ranks leave others less time to say the same."""
    failures._MOMENT, watchdog._TICK = 0.0, 0.05
    with reported(RankEnv.detect(), ends=True):
        train(Sensitive(), fields)


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize("world", others_long([2, 3], [2]))
def test_all_ranks_end_with_one_message(world: int, tmp_path: Path) -> None:
    (tmp_path / "ending.json").touch()
    ranks = Ranks(tmp_path / "ranks", world, {"CASTOFF_ATTEMPT_DIR": str(tmp_path)})
    ranks.start(train_reported, config(tmp_path / "out"))
    assert ranks.end() == [1] * world, ranks.log(0)
    assert re.search(r"castoff train: this attempt is over, according to .*/ending\.json", ranks.log(0))
    for rank in range(1, world):
        assert "AttemptOver: this attempt is over" in ranks.log(rank)
    assert not list(tmp_path.glob("out/toy/checkpoints/step*"))
