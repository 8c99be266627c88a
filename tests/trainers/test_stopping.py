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

from launcher.ranks import RankEnv
from tests.trainers.toys import Toy, config, run
from trainers.core.distributed import Place
from trainers.core.stopping import StoppedEarly, Stopping
from trainers.ddp import TrainerDDP, cleanup_ddp, initialize_ddp

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


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2])
def test_either_signal_asks_and_then_means_what_it_did(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Stopping(ALONE, {}) as stopping:
        assert not stopping.agreed()
        os.kill(os.getpid(), number)
        assert stopping.agreed()
        assert stopping.asked() == number.name.removeprefix("SIG")
    assert signal.getsignal(number) == before


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


def agree(seconds: float, asking: int) -> tuple[int | None, int]:
    """At which step the ranks stop if rank 1 is asked in that one, and how many messages it took."""
    me = RankEnv.detect()
    place = initialize_ddp(me.rank, me.world_size, device="cpu")
    messages = 0
    with Stopping(place, {}) as stopping:
        for step in range(200):
            if step == asking and me.rank == 1:
                os.kill(os.getpid(), signal.SIGTERM)
            if stopping.agreed():
                cleanup_ddp()
                return step, messages
            messages += stopping._sent is not None
            stopping.step_took(seconds * (1 + me.rank))  # the ranks are not equally fast
    cleanup_ddp()
    return None, messages


@pytest.mark.parametrize(("seconds", "until", "messages"), [(1.0, 2, 22), (0.005, 6, 8), (0.000001, 50, 5)])
def test_all_ranks_stop_at_the_same_step(seconds: float, until: int, messages: int, tmp_path: Path) -> None:
    """Soon after one was asked: at once where steps are long, within 0.05 s where they are quick."""
    first, second = run(agree, seconds, 20, folder=tmp_path, world_size=2)
    assert first[0] == second[0]
    assert 20 < first[0] <= 20 + until + 2
    assert first[1] <= messages
