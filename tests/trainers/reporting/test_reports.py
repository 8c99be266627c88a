"""What the log of a training says at its beginning, and what it does not."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.task import Splits
from tests.trainers.toys import Toy, config


class Frozen(Toy):
    def build_model(self) -> nn.Module:
        model: Any = super().build_model()
        model[0].requires_grad_(False)
        return model  # type: ignore[no-any-return]


def said(path: Path, task: Toy, caplog: pytest.LogCaptureFixture, **fields: Any) -> list[str]:
    caplog.clear()
    caplog.set_level(logging.INFO)
    trainer = TrainerDDP(0, {**config(path, num_epochs=1, log_every=100), **fields}, task)
    trainer.run_training(*trainer.prepare_dataloaders()[:2])
    return caplog.messages


def test_the_beginning_of_a_training_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = said(tmp_path, Frozen(64), caplog)
    model = (
        "Model: 161 parameters, 17 of them trained; precision fp32, device cpu; 7 steps per epoch; run folder"
    )
    assert f"{model} {tmp_path}/toy" in lines
    (start,) = (line for line in lines if line.startswith("Starting"))
    assert start == "Starting training: batch_size 8, warmup_steps 0, lr 0.01"
    assert "6 validation samples are few: small differences between validations are chance" in lines
    step = tmp_path / "toy" / "checkpoints" / "step-0000000007"
    assert f"Saving checkpoint for model at epoch 1, step 7: {step}" in lines


def test_one_batch_has_no_spread(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for size, spread in ((8, False), (2, True)):
        lines = said(tmp_path / str(size), Toy(64), caplog, validation={"batch_size": size})
        (line,) = (each for each in lines if each.startswith("Validation: "))
        assert ("±" in line) == spread


def test_foreign_bytes_in_config_yaml_do_not_stop_a_resume(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    said(tmp_path, Toy(64), caplog)
    path = tmp_path / "toy" / "config.yaml"
    path.write_bytes(b"\xff\xfe\x00 caf\xe9")
    assert any(line.startswith("Resuming from") for line in said(tmp_path, Toy(64), caplog))
    assert (tmp_path / "toy" / "config-1.yaml").read_bytes() == b"\xff\xfe\x00 caf\xe9"


class OneLeft(Toy):
    """Nine samples, in batches of two on two ranks, leave one alone."""

    def __init__(self, norm: bool):
        super().__init__(9)
        self.norm = norm

    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.BatchNorm1d(8) if self.norm else nn.Identity(), super().build_model())

    def build_data(self) -> Splits:
        return Splits(super().build_data().train.dataset)


@pytest.mark.parametrize("norm", [True, False])
def test_samples_are_left_out_for_the_sake_of_a_batch_norm_alone(
    norm: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = TrainerDDP(0, config(tmp_path, batch_size=2), OneLeft(norm))
    trainer.context.world_size = 2
    train = trainer.prepare_dataloaders()[0]
    trained = sum(group.samples for group in train.groups(0, 0))
    assert trained == (8 if norm else 9)
    assert ("on which the model's BatchNorm cannot train" in caplog.text) == norm
