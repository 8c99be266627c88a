"""Checkpoints of other versions, and those that lack something, are refused in words."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from castoff.trainers.checkpointing.checkpoints import load_part
from castoff.trainers.checkpointing.errors import CheckpointError
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.files.durable import checksummed, sum_of
from castoff.trainers.task import Task
from tests.trainers.toys import Sensitive, Toy, config


def train(path: Path, epochs: int, task: Task | None = None) -> TrainerDDP:
    trainer = TrainerDDP(0, config(path, num_epochs=epochs, log_every=100), task or Toy(64))
    trainer.run_training(*trainer.prepare_dataloaders()[:2])
    return trainer


def changed(checkpoint: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change a manifest, whose checksum fits again."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    del manifest["crc32"]
    change(manifest)
    (checkpoint / "manifest.json").write_bytes(checksummed(manifest))


def without(checkpoint: Path, *names: str) -> None:
    """Take something out of training.pt."""
    state = load_part(checkpoint, "training")
    part = state
    for name in names[:-1]:
        part = part[name]
    del part[names[-1]]
    file = checkpoint / "training.pt"
    torch.save(state, file)
    new = {"size": file.stat().st_size, "crc32": sum_of(file)}
    changed(checkpoint, lambda manifest: manifest["files"].update({"training.pt": new}))


def newest(path: Path) -> Path:
    return (path / "toy" / "checkpoints" / "latest").resolve()


def test_another_format_is_refused(tmp_path: Path) -> None:
    train(tmp_path, 1)
    manifest = json.loads((newest(tmp_path) / "manifest.json").read_text())
    assert manifest["format"] == 1 and manifest["torch"] == torch.__version__ and manifest["castoff"]
    changed(newest(tmp_path), lambda manifest: manifest.update(format=2, castoff="9.9", torch="3.1"))
    with pytest.raises(
        CheckpointError, match=r"format 2, written by castoff 9\.9 with torch 3\.1; castoff .*"
    ):
        train(tmp_path, 2)


def test_another_version_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    train(tmp_path, 1)
    train(tmp_path, 2)
    assert "may round the last bits" not in caplog.text
    changed(newest(tmp_path), lambda manifest: manifest.update(torch="2.8.0"))
    train(tmp_path, 3)
    assert "with torch 2.8.0; castoff" in caplog.text and "may round the last bits differently" in caplog.text


@pytest.mark.parametrize(
    "names", [("about",), ("task",), ("state", "step"), ("engine", "skipped"), ("about", "metrics")]
)
def test_a_checkpoint_that_lacks_something(names: tuple[str, ...], tmp_path: Path) -> None:
    train(tmp_path, 1)
    without(newest(tmp_path), *names)
    with pytest.raises(CheckpointError, match=rf"has no '{names[-1]}' in training\.pt; written by castoff"):
        train(tmp_path, 2)


def test_a_task_that_reads_more_than_was_kept(tmp_path: Path) -> None:
    class Fewer(Sensitive):
        def state_dict(self) -> dict[str, Any]:
            return {"sum": self.seen}

    train(tmp_path, 1, Fewer())
    with pytest.raises(
        CheckpointError, match=r"load_state_dict reads 'seen', but .* gave 'sum'; read new keys"
    ):
        train(tmp_path, 2, Fewer())


def test_weights_of_another_model(tmp_path: Path) -> None:
    class Growing(Toy):
        def build_model(self) -> nn.Module:
            return nn.Sequential(*[super().build_model(), nn.Linear(1, 1)][: self.samples // 64])

    train(tmp_path, 1, Growing(64))
    with pytest.raises(
        CheckpointError, match=r"do not fit the model that build_model returns: .*Missing key"
    ):
        train(tmp_path, 2, Growing(128))
