"""Who asks for a stop, when it is time for one, and what is said afterwards."""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import nn

from castoff.launcher.ranks import RankEnv
from castoff.trainers.checkpointing.checkpoints import Checkpoints, load_part
from castoff.trainers.ddp import TrainerDDP, cleanup_ddp, initialize_ddp
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.distributed.stopping import StoppedEarly, StoppedInside, Stopping
from castoff.trainers.reporting.metrics_file import MetricsFile
from tests import patience
from tests.cases import others_long
from tests.trainers.toys import Ranks, Toy, config, run

ALONE = RankContext(0, 1, torch.device("cpu"))


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
    for module in ("requests", "stopping"):
        monkeypatch.setattr(f"castoff.trainers.distributed.{module}.time", clock)
    return clock


def test_nobody_asks() -> None:
    with Stopping(ALONE, {}) as stopping:
        assert not stopping.agreed()
        stopping.record_outcome("done")


def test_the_deadline_leaves_time_for_two_steps_two_checkpoints_and_the_grace(clock: Clock) -> None:
    stopping = Stopping(ALONE, {"CASTOFF_DEADLINE": str(clock.now + 1000), "CASTOFF_GRACE": "60"})
    stopping.longest_step, stopping.longest_checkpoint = 10, 30
    clock.now += 1000 - 60 - 2 * 30 - 2 * 10 - 1
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
    environ = {"CASTOFF_STOP_FILE": str(tmp_path / "stop"), "CASTOFF_DEADLINE": "1"}
    assert Stopping(RankContext(1, 2, torch.device("cpu")), environ).asked() is None


def test_a_checkpoint_on_its_way_to_the_disk_is_waited_for() -> None:
    """The last one begins when that is durable."""
    stopping = Stopping(ALONE, {"CASTOFF_GRACE": "0"})
    least = stopping.margin
    for seconds in (30.0, 20.0):
        stopping.checkpoint_took(seconds)
    assert stopping.margin == least + 60


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR2, signal.SIGINT])
def test_each_signal_asks_and_then_means_what_it_did(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with Stopping(ALONE, {}) as stopping:
        assert not stopping.agreed()
        assert stopping.reason() == "no rank was asked"
        os.kill(os.getpid(), number)
        assert stopping.agreed()
        assert stopping.asked() == number.name.removeprefix("SIG")
    assert signal.getsignal(number) == before


def test_an_interrupt_that_nobody_means(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell has its background jobs ignore it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Stopping(ALONE, {}) as stopping:
            os.kill(os.getpid(), signal.SIGINT)
            assert not stopping.agreed()
    finally:
        signal.signal(signal.SIGINT, before)


def interrupted(seconds: float) -> str | None:
    """Twice, so far apart."""
    clock = Clock()
    with patch("castoff.trainers.distributed.requests.time", clock), Stopping(ALONE, {}) as stopping:
        os.kill(os.getpid(), signal.SIGINT)
        clock.now += seconds
        os.kill(os.getpid(), signal.SIGINT)
        return stopping.asked()


@pytest.mark.parametrize(("seconds", "ends"), [(0.1, 0), (0.3, -signal.SIGINT)])
def test_a_second_interrupt_ends_it_at_once(seconds: float, ends: int, tmp_path: Path) -> None:
    """But not what a wrapper has sent twice."""
    ranks = Ranks(tmp_path, 1)
    ranks.start(interrupted, seconds)
    assert ranks.end() == [ends], ranks.log(0)


@pytest.mark.parametrize(("file", "code"), [(None, 75), ("", 75), ("/x/outcome", 0)])
def test_the_code_when_stopped_early(file: str | None, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a file does not: there, another code than 0 would be a rank that failed."""
    if file is not None:
        monkeypatch.setenv("CASTOFF_OUTCOME_FILE", file)
    stopped = StoppedEarly("the deadline")
    assert isinstance(stopped, SystemExit)
    assert stopped.code == code


def test_the_outcome_is_whole(tmp_path: Path) -> None:
    environ = {"CASTOFF_OUTCOME_FILE": str(tmp_path / "outcome")}
    Stopping(RankContext(1, 2, torch.device("cpu")), environ).record_outcome("done")
    assert not list(tmp_path.iterdir())
    Stopping(ALONE, environ).record_outcome("resume")
    assert [path.name for path in tmp_path.iterdir()] == ["outcome"]
    assert (tmp_path / "outcome").read_text() == "resume\n"


def test_each_host_of_castoffs_own_launcher_is_notified(tmp_path: Path) -> None:
    """It sees its own host alone: the first rank there tells it, and on others than the first nobody else."""
    there = {"CASTOFF_OUTCOME_FILE": str(tmp_path / "outcome"), "CASTOFF_LAUNCHER": "local"}
    Stopping(RankContext(3, 4, torch.device("cpu")), {**there, "LOCAL_RANK": "1"}).record_outcome("resume")
    assert not list(tmp_path.iterdir())
    Stopping(RankContext(2, 4, torch.device("cpu")), {**there, "LOCAL_RANK": "0"}).record_outcome("resume")
    assert (tmp_path / "outcome").read_text() == "resume\n"


@pytest.mark.parametrize("stopped", [True, False])
def test_no_outcome_is_recorded_before_the_checkpoint_is_on_the_disk(
    stopped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it cannot be written, neither `resume` nor `done` would be true."""
    monkeypatch.setenv("CASTOFF_OUTCOME_FILE", str(tmp_path / "outcome"))
    monkeypatch.setenv("CASTOFF_STOP_FILE", str(tmp_path if stopped else tmp_path / "none"))

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Checkpoints, "_write", full)
    trainer = TrainerDDP(0, config(tmp_path / "out", num_epochs=1), Toy(40))
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        trainer.run_training(*trainer.prepare_dataloaders()[:2])
    assert trainer.step == (0 if stopped else 4)
    assert not (tmp_path / "outcome").exists()


class StopsInValidation(Toy):
    """TERM comes in the first batch of its second validation, if it is to."""

    def __init__(self, stops: bool):
        super().__init__(40)
        self.stops = stops
        self.validations = 0

    def evaluate(self, model: nn.Module, batch: Any) -> Any:
        self.validations += 1
        if self.stops and self.validations == 3:  # two batches each
            os.kill(os.getpid(), signal.SIGTERM)
        return super().evaluate(model, batch)


def test_a_validation_that_was_stopped_is_done_anew(tmp_path: Path) -> None:
    """Everything is saved before it begins, and no line of metrics stands twice."""
    fields = config(tmp_path, num_epochs=3)
    fields["validation"] = {"batch_size": 2}
    whole = TrainerDDP(0, fields, StopsInValidation(False))
    results = whole.run_training(*whole.prepare_dataloaders()[:2])
    fields["training"]["run"] = "stopped"
    trainer = TrainerDDP(0, fields, StopsInValidation(True))
    with pytest.raises(StoppedEarly):
        trainer.run_training(*trainer.prepare_dataloaders()[:2])
    assert (trainer.epoch, len(trainer.val_data)) == (2, 1)
    trainer = TrainerDDP(0, fields, StopsInValidation(False))
    assert trainer.run_training(*trainer.prepare_dataloaders()[:2]) == results
    assert losses_by_step(trainer.folder) == losses_by_step(whole.folder)


def losses_by_step(folder: Path) -> list[tuple[Any, ...]]:
    lines = MetricsFile(folder / "metrics.jsonl").read()
    return [(line["step"], line.get("train/loss"), line.get("val/loss")) for line in lines]


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


@pytest.mark.parametrize(("seconds", "until", "messages"), [(1.0, 2, 22), (0.025, 6, 8), (0.000001, 50, 5)])
def test_all_ranks_stop_at_the_same_step(seconds: float, until: int, messages: int, tmp_path: Path) -> None:
    """Soon after one was asked: at once where steps are long, within 0.25 s where they are quick."""
    first, second = run(agree, seconds, 20, folder=tmp_path, world_size=2)
    assert first[0] == second[0]
    assert 20 < first[0] <= 20 + until + 2
    assert first[1] <= messages


# --- Between the batches of a validation -------------------------------------------------------------


def test_a_validation_is_left_between_two_batches(clock: Clock) -> None:
    """When a signal comes, and when the deadline is near."""
    with Stopping(ALONE, {"CASTOFF_DEADLINE": str(clock.now + 90), "CASTOFF_GRACE": "10"}) as stopping:
        assert list(stopping.between([1, 2, 3], 3)) == [1, 2, 3]
        batches = stopping.between([1, 2, 3], 3)
        assert next(batches) == 1
        clock.now += 20  # so long a batch takes: two more and the grace end after it
        assert next(batches) == 2
        clock.now += 20
        assert stopping.longest_step == 20
        with pytest.raises(StoppedInside):
            next(batches)
        assert stopping.reason() == "the deadline"
    with Stopping(ALONE, {}) as stopping:
        batches = stopping.between([1, 2, 3], 3)
        assert next(batches) == 1
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(StoppedInside):
            next(batches)
        assert stopping.reason() == "TERM"


def validate(asking: int | None) -> tuple[list[int], float, int | None]:
    """Seven batches on rank 0 and four on the others, each of a second; rank 2 is asked in one of them.

    Which of them this rank has seen, a sum over ranks afterwards, and whether a step later stops.
    """
    me = RankEnv.detect()
    place = initialize_ddp(me.rank, me.world_size, device="cpu")
    clock = Clock()
    seen = []
    stopped = None
    with patch("castoff.trainers.distributed.stopping.time", clock), Stopping(place, {}) as stopping:
        for _ in range(20):  # quick ones, between which many go without a message
            stopping.step_took(1e-6)
            assert not stopping.agreed()
        try:
            for batch in stopping.between(range(7 if me.rank == 0 else 4), 7):
                clock.now += 1
                seen.append(batch)
                if (me.rank, batch) == (2, asking):
                    os.kill(os.getpid(), signal.SIGTERM)
        except StoppedInside:
            stopped = len(seen)
        total = float(place.sum(torch.ones(1)).item())
    cleanup_ddp()
    return seen, total, stopped


def test_ranks_with_uneven_batches_leave_a_validation_together(tmp_path: Path) -> None:
    """Two rounds after the one in which somebody was asked, also who has no batch left."""
    assert run(validate, None, folder=tmp_path / "none", world_size=3) == [
        ([*range(count)], 3.0, None) for count in (7, 4, 4)
    ]
    for asking in (0, 2, 3):
        answers = run(validate, asking, folder=tmp_path / str(asking), world_size=3)
        last = asking + 2
        assert answers == [([*range(count)], 3.0, count) for count in (last, min(last, 4), min(last, 4))]


def stop_after_a_validation() -> int:
    """At which of the steps that follow sixty quick batches this rank stops; rank 1 is asked before them."""
    me = RankEnv.detect()
    place = initialize_ddp(me.rank, me.world_size, device="cpu")
    clock = Clock()
    with patch("castoff.trainers.distributed.stopping.time", clock), Stopping(place, {}) as stopping:
        for _ in stopping.between(range(60), 60):
            clock.now += 1e-6
        if me.rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        step = 0
        while not stopping.agreed():
            step += 1
            stopping.step_took(60.0)
    cleanup_ddp()
    return step


def test_quick_validation_batches_do_not_predict_the_steps_after_them(tmp_path: Path) -> None:
    """They may take a minute each, and go with a message from the first one on."""
    assert run(stop_after_a_validation, folder=tmp_path, world_size=2) == [1, 1]


# --- Ranks that are stopped ----------------------------------------------------------------------------


def train(task: Toy, fields: dict[str, Any]) -> list[str]:
    """A training; which threads are left of it when it has ended, or while an early stop is reported."""
    me = RankEnv.detect()
    if me.world_size > 1:
        initialize_ddp(me.rank, me.world_size, device="cpu")
    try:
        trainer = TrainerDDP(me.rank, fields, task)
        trainer.run_training(*trainer.prepare_dataloaders()[:2])
    finally:
        cleanup_ddp()
    return threads()


def threads() -> list[str]:
    return [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]


def train_to_a_stop(task: Toy, fields: dict[str, Any]) -> list[str]:
    try:
        train(task, fields)
    except StoppedEarly:
        return threads()
    raise AssertionError("nobody has stopped it")


@pytest.mark.usefixtures("for_real")
@pytest.mark.long  # each rank is a new interpreter
def test_no_thread_of_the_group_outlives_it(tmp_path: Path) -> None:
    """One that lets go of a tensor when Python has ended aborts the rank, whose training was done."""
    whole = Ranks(tmp_path / "whole", 2, fresh=True)
    whole.start(train, Toy(40), config(tmp_path / "one", num_workers=2))
    (tmp_path / "stop").touch()
    stopped = Ranks(tmp_path / "stopped", 2, {"CASTOFF_STOP_FILE": str(tmp_path / "stop")})
    stopped.start(train_to_a_stop, Toy(40), config(tmp_path / "two", num_workers=2))
    for left in (*whole.answers(), *stopped.answers()):
        assert not [name for name in left if "gloo" in name]


def steps(folder: Path) -> int:
    found = [line["step"] for path in folder.glob("*/metrics.jsonl") for line in MetricsFile(path).read()]
    return max(found, default=0)


def until_step(ranks: Ranks, folder: Path, wanted: int) -> None:
    def reached() -> bool:
        assert all(process.poll() is None for process in ranks.processes), ranks.log(0)
        return steps(folder) >= wanted

    patience.until(reached, f"step {wanted}")


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize("context", others_long(["fork", "spawn", "forkserver"], ["fork"]))
def test_signals_to_the_whole_step(context: str, tmp_path: Path) -> None:
    """Ranks, loader workers and what those rest on all get TERM and USR2; nothing is lost."""
    outcome = tmp_path / "outcome"
    fields = config(tmp_path / "out", num_epochs=30, num_workers=2, multiprocessing_context=context)
    world = 2 if context == "fork" else 1  # other workers import torch, which takes seconds
    ranks = Ranks(tmp_path / "ranks", world, {"CASTOFF_OUTCOME_FILE": str(outcome)})
    ranks.start(train, Toy(pause=0.02), fields)
    until_step(ranks, tmp_path / "out", 3)
    for process in ranks.processes:
        os.killpg(process.pid, signal.SIGTERM)
        os.killpg(process.pid, signal.SIGUSR2)
    assert ranks.end() == [0] * world, ranks.log(0)
    assert outcome.read_text() == "resume\n"
    (folder,) = (tmp_path / "out").iterdir()
    newest = Checkpoints(folder / "checkpoints").newest()
    assert newest is not None
    assert load_part(newest, "training")["state"]["step"] == steps(tmp_path / "out")
