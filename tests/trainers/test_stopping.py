"""Who asks for a stop, when it is time for one, and what is said afterwards."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.trainers.toys import Toy, config
from trainers.ddp import TrainerDDP
from trainers.distributed import Place
from trainers.stopping import StoppedEarly, Stopping

ALONE = Place(0, 1, torch.device("cpu"))


class Clock:
    """A time that passes when somebody says so."""

    strftime = staticmethod(time.strftime)

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def time(self) -> float:
        return self.now

    monotonic = perf_counter = time


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in ("stopping", "ddp"):
        monkeypatch.setattr(f"trainers.{module}.time", clock)
    return clock


def test_nobody_asks() -> None:
    with Stopping(ALONE, {}) as stopping:
        assert not stopping.agreed()
        assert not stopping.agreed_on(1e9)
        stopping.say("done")


def test_the_deadline_leaves_time_for_two_steps_a_checkpoint_and_the_grace(clock: Clock) -> None:
    stopping = Stopping(ALONE, {"CASTOFF_DEADLINE": str(clock.now + 1000), "CASTOFF_GRACE": "60"})
    stopping.longest_step, stopping.longest_checkpoint = 10, 30
    clock.now += 1000 - 60 - 30 - 2 * 10 - 1
    assert stopping.asked() is None
    clock.now += 1
    assert stopping.asked() == "the deadline"


def test_without_a_grace_it_is_two_minutes(clock: Clock) -> None:
    stopping = Stopping(ALONE, {"CASTOFF_DEADLINE": str(clock.now + 121)})
    assert stopping.asked() is None
    clock.now += 1
    assert stopping.agreed()


def test_the_file_is_looked_for_once_a_second(clock: Clock, tmp_path: Path) -> None:
    file = tmp_path / "stop"
    stopping = Stopping(ALONE, {"CASTOFF_STOP_FILE": str(file)})
    assert stopping.asked() is None
    file.touch()
    clock.now += 0.9
    assert stopping.asked() is None
    clock.now += 0.1
    assert stopping.asked() == "the stop file"
    file.unlink()
    clock.now += 9
    assert stopping.asked() == "the stop file", "nobody can take it back"


def test_another_rank_looks_at_neither(clock: Clock, tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    told = {"CASTOFF_STOP_FILE": str(tmp_path / "stop"), "CASTOFF_DEADLINE": "1"}
    assert Stopping(Place(1, 2, torch.device("cpu")), told).asked() is None


def test_term_asks_and_means_afterwards_what_it_meant() -> None:
    heard = []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append("TERM"))
    try:
        with Stopping(ALONE, {}) as stopping:
            os.kill(os.getpid(), signal.SIGTERM)
            assert stopping.agreed()
        assert not heard
        os.kill(os.getpid(), signal.SIGTERM)
        assert heard == ["TERM"]
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_outcome_is_whole(tmp_path: Path) -> None:
    told = {"CASTOFF_OUTCOME_FILE": str(tmp_path / "outcome")}
    Stopping(Place(1, 2, torch.device("cpu")), told).say("done")
    assert not list(tmp_path.iterdir())
    Stopping(ALONE, told).say("again")
    assert [path.name for path in tmp_path.iterdir()] == ["outcome"]
    assert (tmp_path / "outcome").read_text() == "again\n"


class LongValidation(Toy):
    """One that takes 100 seconds."""

    clock: Clock | None = None

    def evaluate(self, model: nn.Module, batch: Any) -> Any:
        if self.clock:
            self.clock.now += 100
        return super().evaluate(model, batch)


def test_no_validation_begins_that_would_not_end(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on with the validation that was due."""
    fields = config(tmp_path, num_epochs=2, batch_size=40)
    monkeypatch.setenv("CASTOFF_RUN_DIR", str(tmp_path / "run"))
    trainer = TrainerDDP(0, fields, LongValidation(40))
    whole = trainer.run_training(*trainer.prepare_dataloaders()[:2])
    monkeypatch.setenv("CASTOFF_RUN_DIR", str(tmp_path / "other"))
    monkeypatch.setenv("CASTOFF_DEADLINE", str(clock.now + 150))
    monkeypatch.setenv("CASTOFF_GRACE", "10")
    task = LongValidation(40)
    task.clock = clock
    trainer = TrainerDDP(0, fields, task)
    with pytest.raises(StoppedEarly):
        trainer.run_training(*trainer.prepare_dataloaders()[:2])
    assert (trainer.epoch, trainer.step, len(trainer.val_data)) == (1, 2, 1)
    monkeypatch.delenv("CASTOFF_DEADLINE")
    trainer = TrainerDDP(0, fields, task)
    assert trainer.run_training(*trainer.prepare_dataloaders()[:2]) == whole
