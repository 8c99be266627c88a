"""A task's hooks: which ranks call them, with what, and what a resumed run has of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from torch import nn

from castoff.launcher.ranks import RankEnv
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed.process_group import cleanup_ddp, initialize_ddp
from castoff.trainers.task import Loss
from castoff.trainers.task.hooks import HookError
from castoff.trainers.task.training_state import TrainingState
from tests.trainers.toys import Toy, config, digest, lasting_lines, run


class Killed(BaseException):
    """Stands for SIGKILL: nothing is saved on the way out."""


class Watching(Toy):
    """Writes down its hooks' calls, and learns the slower the lower its loss was: by a state of its own."""

    def __init__(self, dies_at: int = 0):
        super().__init__(samples=60)
        self.dies_at = dies_at
        self.losses = 0
        self.weight = 1.0
        self.calls: list[Any] = []
        self.checkpoints: list[str] = []

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        if model.training:
            self.losses += 1
            if self.losses == self.dies_at:
                raise Killed
        loss = super().loss(model, batch)
        return Loss(loss.total * self.weight)

    def on_step(self, state: TrainingState, metrics: Mapping[str, float]) -> None:
        self.weight *= 1 - 0.01 * metrics.get("train/loss", 1.0) / 100
        self.calls.append((state.step, dict(metrics).get("train/loss")))

    def on_validation(self, state: TrainingState, metrics: Mapping[str, float]) -> None:
        self.weight *= 1 - 0.01 * metrics["loss"] / 100
        self.calls.append(("validation", state.step, metrics["loss"]))

    def on_checkpoint(self, state: TrainingState, path: Path) -> None:
        assert json.loads((path / "manifest.json").read_text())
        self.checkpoints.append(path.name)

    def state_dict(self) -> dict[str, Any]:
        return {"weight": self.weight, "calls": json.dumps(self.calls)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weight, self.calls = state["weight"], list(map(_entry, json.loads(state["calls"])))


def _entry(call: list[Any]) -> tuple[Any, ...]:
    return tuple(call)


def trained(path: Path, task: Toy, **training: Any) -> TrainerDDP:
    often = {"num_epochs": 2, "log_every": 2, "checkpoint_every_steps": 3, **training}
    trainer = TrainerDDP(RankEnv.detect().rank, config(path, **often), task)
    trainer.run_training(*trainer.prepare_dataloaders()[:2])
    return trainer


def test_each_is_called_at_its_time(tmp_path: Path) -> None:
    task = Watching()
    trained(tmp_path, task)
    steps = [call for call in task.calls if call[0] != "validation"]
    assert [step for step, _ in steps] == list(range(1, 13))
    assert [step for step, loss in steps if loss is not None] == [2, 4, 6, 8, 10, 12]
    lines = {line["step"]: line for line in lasting_lines(tmp_path / "toy") if "train/loss" in line}
    assert all(lines[step]["train/loss"] == loss for step, loss in steps if loss is not None)
    assert [call[1] for call in task.calls if call[0] == "validation"] == [6, 12]
    assert task.checkpoints[-1] == "step-0000000012"


@pytest.mark.parametrize("dies_at", [2, 5, 7, 8, 13])
def test_a_killed_run_has_the_same_calls(dies_at: int, tmp_path: Path) -> None:
    """Where the kill loses steps, the state is that before their hooks."""
    whole = Watching()
    weights = digest(trained(tmp_path / "whole", whole, num_epochs=3).model)
    with pytest.raises(Killed):
        trained(tmp_path / "killed", Watching(dies_at), num_epochs=3)
    resumed = Watching()
    assert digest(trained(tmp_path / "killed", resumed, num_epochs=3).model) == weights
    assert (resumed.weight, resumed.calls) == (whole.weight, whole.calls)
    assert lasting_lines(tmp_path / "killed" / "toy") == lasting_lines(tmp_path / "whole" / "toy")


class Failing(Toy):
    def __init__(self, hook: str, rank: int = 0):
        super().__init__(samples=60)
        if RankEnv.detect().rank == rank:
            setattr(type(self), hook, self.fails)

    @staticmethod
    def fails(*_: Any) -> None:
        raise KeyError("train/acuracy")


@pytest.mark.parametrize("hook", ["on_step", "on_validation", "on_checkpoint"])
def test_an_error_names_the_hook(hook: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Failing, hook, getattr(Toy, hook), raising=False)  # undoes what Failing sets
    with pytest.raises(HookError, match=rf"^Failing\.{hook} failed at step \d+: KeyError: 'train/acuracy'$"):
        trained(tmp_path, Failing(hook))


class Forgetful(Toy):
    """Keeps what it logs where no checkpoint finds it."""

    def __init__(self) -> None:
        super().__init__(samples=60)
        self.scale = 1.0

    def on_step(self, state: TrainingState, metrics: Mapping[str, float]) -> None:
        if metrics:
            self.scale *= 0.5


def test_state_that_no_checkpoint_holds_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trained(tmp_path, Forgetful())
    (said,) = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert said.startswith("Forgetful.on_step changes Forgetful.scale, which no checkpoint holds")


class Counts(Toy):
    """Keeps a whole number where no checkpoint finds it."""

    calls: int

    def on_step(self, state: TrainingState, metrics: Mapping[str, float]) -> None:
        self.calls += 1


def test_also_of_a_hooks_whole_number(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    task = Counts(samples=60)
    task.calls = 0
    trained(tmp_path, task, log_every=1, num_epochs=1)
    (said,) = [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
    assert said.startswith("Counts.on_step changes Counts.calls, which no checkpoint holds")


class Together(Watching):
    """Communicates in the hooks of all ranks."""

    def on_step(self, state: TrainingState, metrics: Mapping[str, float]) -> None:
        dist.barrier()
        super().on_step(state, metrics)

    def on_validation(self, state: TrainingState, metrics: Mapping[str, float]) -> None:
        dist.barrier()
        super().on_validation(state, metrics)


def hooked(path: Path) -> tuple[list[Any], list[str]]:
    me = RankEnv.detect()
    initialize_ddp(me.rank, me.world_size, device="cpu")
    task = Together()
    trained(path, task)
    cleanup_ddp()
    return task.calls, task.checkpoints


@pytest.mark.usefixtures("for_real")
def test_ranks_get_the_same(tmp_path: Path) -> None:
    answers = run(hooked, tmp_path / "out", folder=tmp_path / "ranks", world_size=3)
    assert answers[0][0] == answers[1][0] == answers[2][0]
    assert answers[0][1]
    assert answers[1][1] == answers[2][1] == []
