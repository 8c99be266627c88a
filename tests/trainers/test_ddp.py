"""TrainerDDP: the bugs of its forerunners, each a test, and what a program does with it."""

from __future__ import annotations

import json
import logging
import os
import time
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR
from torch.utils.data import TensorDataset, random_split

from castoff.launcher.ranks import RankEnv
from castoff.trainers.checkpointing.checkpoints import Checkpoints, load_part
from castoff.trainers.configuration.config import Evaluation
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.data.loaders import evaluation_loader
from castoff.trainers.ddp import TrainerDDP, cleanup_ddp, initialize_ddp
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.evaluation.metrics import evaluate
from castoff.trainers.optimization.engine import Engine
from castoff.trainers.optimization.strategy import strategy_of
from castoff.trainers.reporting.metrics_file import MetricsFile
from castoff.trainers.task import Splits
from tests.trainers.toys import Toy, config, digest, run

pytestmark = pytest.mark.usefixtures("for_real")


def train(task: Toy, fields: dict[str, Any]) -> dict[str, Any]:
    """A whole training on this rank."""
    me = RankEnv.detect()
    if me.world_size > 1:
        initialize_ddp(me.rank, me.world_size, device="cpu")
    try:
        trainer = TrainerDDP(me.rank, fields, task)
        first, second, _ = trainer.prepare_dataloaders()
        results = trainer.run_training(first, second)
        return {
            "digest": digest(trainer.model),
            "step": trainer.step,
            "epoch": trainer.epoch,
            "folder": str(trainer.folder),
            "results": results,
            "metrics": MetricsFile(trainer.folder / "metrics.jsonl").read() if me.rank == 0 else None,
        }
    finally:
        cleanup_ddp()


@pytest.fixture
def trainer(tmp_path: Path) -> TrainerDDP:
    return TrainerDDP(0, config(tmp_path), Toy())


# --- Seed 001's bugs, and Q1 to Q12 ------------------------------------------------------------------


def test_q1_a_fresh_trainer_has_done_nothing(trainer: TrainerDDP) -> None:
    assert (trainer.epoch, trainer.step) == (0, 0)


class Recorder(nn.Module):
    """Stands in for DistributedDataParallel."""

    def __init__(self, module: nn.Module, **given: Any):
        super().__init__()
        self.given = given


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("castoff.trainers.optimization.wrapping.DistributedDataParallel", Recorder)
    monkeypatch.setattr("castoff.trainers.optimization.wrapping.settle_buckets", lambda wrapped: None)


@pytest.mark.usefixtures("recorded")
def test_q2_ddp_is_given_the_index(trainer: TrainerDDP, monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = trainer.engine.optimizer
    context = RankContext(0, 2, torch.device("cuda", 2))
    strategy = strategy_of(trainer.model, trainer.config, context)
    engine = Engine(strategy, optimizer, trainer.config, context)
    monkeypatch.setattr(RankContext, "distributed", True)
    with engine.wrapped():
        assert isinstance(engine.reducer, Recorder)
        assert engine.reducer.given["device_ids"] == [2]


class Diverging(Toy):
    """A validation that only rank 0 could call better: the decision must be one for all."""

    def evaluate(self, model: nn.Module, batch: Any) -> Any:
        return {"loss": (float(os.environ["RANK"]) + time.monotonic(), 1)}


def test_q3_all_ranks_stop_together(tmp_path: Path) -> None:
    fields = config(tmp_path / "out", num_epochs=30)
    fields["early_stopping"] = {"kwargs": {"patience": 2}}
    answers = run(train, Diverging(40), fields, folder=tmp_path / "ranks", world_size=2)
    assert [answer["epoch"] for answer in answers] == [3, 3]


def test_q3_a_rank_without_validation_data(tmp_path: Path) -> None:
    """One sample is rank 0's; the other rank knows the result, too."""
    answers = run(train, Toy(10), config(tmp_path / "out"), folder=tmp_path / "ranks", world_size=2)
    (_, first), (_, second) = (answer["results"] for answer in answers)
    assert first == second
    assert [metrics["loss"] > 0 for metrics in second] == [True] * 3


class Careless(Toy):
    """Splits by the global generator, as one does."""

    def build_data(self) -> Splits:
        return Splits(*random_split(TensorDataset(torch.arange(100.0)[:, None]), [80, 10, 10]))


def shares(fields: dict[str, Any]) -> list[list[int]]:
    """Which samples this rank trains on, validates and tests with."""
    me = RankEnv.detect()
    initialize_ddp(me.rank, me.world_size, device="cpu")
    torch.manual_seed(me.rank)
    train, *others = TrainerDDP(me.rank, fields, Careless()).prepare_dataloaders()
    cleanup_ddp()
    found = [[micro.data for group in train.groups(0, 0) for micro in group.micros]]
    found += [[batch.data for batch in loader] for loader in others]
    return [[int(number) for (numbers,) in batches for number in numbers] for batches in found]


def test_q5_splits_are_the_same_on_all_ranks(tmp_path: Path) -> None:
    """And disjoint over them: nobody trains on what another rank validates or tests with."""
    answers = run(shares, config(tmp_path / "out"), folder=tmp_path / "ranks", world_size=3)
    trained, validated, tested = ([sorted(answer[part]) for answer in answers] for part in range(3))
    assert tested[0] == tested[1] == tested[2]
    whole = [*chain(*trained), *chain(*validated), *tested[0]]
    assert sorted(whole) == list(range(100))


@pytest.mark.usefixtures("recorded")
def test_q8_the_model_is_moved_before_it_is_wrapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    class Moved(nn.Linear):
        def to(self, *where: Any, **also: Any) -> Any:
            seen.append("moved")
            return super().to(*where, **also)

    class Task(Toy):
        def build_model(self) -> nn.Module:
            return Moved(8, 1)

    class Wrapper(Recorder):
        def __init__(self, module: nn.Module, **given: Any):
            super().__init__(module, **given)
            seen.append("wrapped")

    monkeypatch.setattr("castoff.trainers.optimization.wrapping.DistributedDataParallel", Wrapper)
    trainer = TrainerDDP(0, config(tmp_path), Task())
    monkeypatch.setattr(RankContext, "distributed", True)
    with trainer.engine.wrapped():
        assert seen == ["moved", "wrapped"]


@pytest.fixture(scope="module")
def on_two_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What comes of a training, by rank."""
    folder = tmp_path_factory.mktemp("two")
    halves = {"lr_scheduler_type": ExponentialLR, "lr_scheduler_kwargs": {"gamma": 0.5}}
    fields = config(folder / "out", **halves, lr_scheduler_per="epoch")
    return run(train, Toy(40), fields, folder=folder / "ranks", world_size=2)


def test_q9_the_learning_rates_are_those_of_one_process(on_two_ranks: list[dict[str, Any]]) -> None:
    rates = {line["epoch"]: line["train/lr"] for line in on_two_ranks[0]["metrics"] if "train/lr" in line}
    assert rates == {0: 0.01, 1: 0.005, 2: 0.0025}


def test_q10_one_folder_for_all_ranks(on_two_ranks: list[dict[str, Any]]) -> None:
    (folder,) = {Path(answer["folder"]) for answer in on_two_ranks}
    assert list(folder.parent.iterdir()) == [folder]
    assert (folder / "config.yaml").exists()


def test_q11_a_checkpoint_loads_into_a_plain_module(on_two_ranks: list[dict[str, Any]]) -> None:
    first, second = on_two_ranks
    newest = max((Path(first["folder"]) / "checkpoints").glob("step-*"))
    model = Toy().build_model()
    model.load_state_dict(load_part(newest, "model"))
    assert digest(model) == first["digest"] == second["digest"]


def test_the_results_are_those_of_all_ranks(on_two_ranks: list[dict[str, Any]]) -> None:
    first, second = (answer["results"] for answer in on_two_ranks)
    assert first == second
    assert [len(part) for part in first] == [3, 3]


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(8, 1), nn.Linear(8, 1).requires_grad_(False)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.used(numbers)
        return out


class OneActiveHead(Toy):
    def build_model(self) -> nn.Module:
        return TwoHeads()


def test_q16_a_head_that_is_switched_off(tmp_path: Path) -> None:
    """Frozen before it is wrapped, it makes DDP wait for nothing."""
    answers = run(train, OneActiveHead(40), config(tmp_path / "out"), folder=tmp_path / "r", world_size=2)
    assert {answer["epoch"] for answer in answers} == {3}


class Normed(Toy):
    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))

    def evaluate(self, model: nn.Module, batch: Any) -> Any:
        assert type(model) is nn.Sequential, "what DDP wraps waits for ranks that have no batch left"
        return super().evaluate(model, batch)


def test_the_end_of_an_epoch_is_enough_for_batch_norm(tmp_path: Path) -> None:
    """163 samples in global batches of 16 leave 3, of which one of two ranks had a single one."""
    fields = config(tmp_path / "out", num_epochs=2)
    answers = run(train, Normed(203), fields, folder=tmp_path / "ranks", world_size=2)
    assert {answer["step"] for answer in answers} == {2 * 11}
    assert answers[0]["digest"] == answers[1]["digest"]


def validated(fields: dict[str, Any]) -> tuple[float, float]:
    """The last validation's loss, and the same model's over the whole set on this rank alone."""
    me = RankEnv.detect()
    initialize_ddp(me.rank, me.world_size, device="cpu")
    trainer = TrainerDDP(me.rank, fields, Normed(70))
    first, second, _ = trainer.prepare_dataloaders()
    _, metrics = trainer.run_training(first, second)
    alone = RankContext(0, 1, torch.device("cpu"), alone=True)
    whole = evaluation_loader(
        Normed(70).build_data().validation,
        Evaluation(batch_size=2),
        trainer.config.training,
        trainer.task.collate,
        rank=0,
        world_size=1,
    )
    mine = evaluate(trainer.task, trainer.model, whole, alone)
    cleanup_ddp()
    return metrics[-1]["loss"], mine["loss"]


def test_q17_evaluation_with_batch_norm_on_uneven_shards(tmp_path: Path) -> None:
    """Seven samples: four batches on one rank, three on the other. It ends, and is exact."""
    fields = config(tmp_path / "out", num_epochs=2, batch_size=4)
    fields |= {"validation": {"batch_size": 1}, "parallel": {"timeout": 20}}
    answers = run(validated, fields, folder=tmp_path / "ranks", world_size=2)
    (first, alone), (second, _) = answers
    assert first == second == pytest.approx(alone, rel=1e-6)


# --- Runs and what is left of them ---------------------------------------------------------------------


def test_a_run_that_is_over_is_not_trained_again(tmp_path: Path) -> None:
    fields = config(tmp_path / "out")
    fields["early_stopping"] = {"kwargs": {"patience": 1, "tasks": {"t": {"metric": "loss", "delta": 9e9}}}}
    one, two = (train(Toy(40), fields) for _ in range(2))
    assert one["step"] == two["step"]
    assert one["epoch"] == 2
    assert one["digest"] == two["digest"]


def test_another_seed_or_batch_cannot_resume(tmp_path: Path) -> None:
    for wrong, says in [
        ({}, None),
        ({"seed": 1}, r"training\.seed: is 1, but .*step-.* was made with 0.*\n.*--fresh"),
        ({"batch_size": 7}, r"global batch"),
    ]:
        trainer = TrainerDDP(0, config(tmp_path, **wrong), Toy())
        first, second, _ = trainer.prepare_dataloaders()
        if says is None:
            trainer.run_training(first, second)
            continue
        with pytest.raises(ConfigError, match=says):
            trainer.run_training(first, second)


class Shown(Toy):
    """Has arguments that are not what is trained."""

    volatile_arguments, changeable_arguments = ("folder",), ("steps",)

    def __init__(self, samples: int = 40, folder: str = "", steps: int = 1):
        super().__init__(samples)


def test_arguments_that_are_not_what_is_trained_may_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def attempt(epochs: int, **arguments: Any) -> TrainerDDP:
        trainer = TrainerDDP(
            0, {**config(tmp_path, num_epochs=epochs), "task": Shown, "task_kwargs": arguments}
        )
        trainer.run_training(*trainer.prepare_dataloaders()[:2])
        newest = Checkpoints(trainer.folder / "checkpoints").newest()
        assert newest is not None
        words.append(load_part(newest, "training")["about"]["digest"])
        return trainer

    words: list[str] = []
    first = attempt(1, folder="/here", steps=3)
    with caplog.at_level(logging.INFO):
        second = attempt(2, folder="/there", steps=5)
    assert second.epoch == 2
    assert f"task_kwargs.steps: was 3 until step {first.step}, is 5 from here on" in caplog.text
    assert "task_kwargs.folder" not in caplog.text
    assert len(set(words)) == 1, "what a resumed run is called in the log"
    with pytest.raises(ConfigError, match=r"task_kwargs\.samples: is 48, but .* was made with none given"):
        attempt(3, samples=48)


def test_what_a_program_saves_by_itself_is_loaded(tmp_path: Path) -> None:
    trainer = TrainerDDP(0, config(tmp_path), Toy())
    first, second, _ = trainer.prepare_dataloaders()
    trainer.run_training(first, second)
    path = trainer.save_checkpoint()
    other = TrainerDDP(0, config(tmp_path, seed=3), Toy())
    assert digest(other.model) != digest(trainer.model)
    other.load_checkpoint(path)
    assert digest(other.model) == digest(trainer.model)


def test_training_without_loaders_of_the_trainer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="prepare_dataloaders"):
        TrainerDDP(0, config(tmp_path), Toy()).run_training([], None)  # type: ignore[arg-type]


def test_a_test_is_for_one_rank_or_all(tmp_path: Path, trainer: TrainerDDP) -> None:
    first, second, third = trainer.prepare_dataloaders()
    trainer.run_training(first, second)
    metrics = trainer.run_test(third)
    assert set(metrics) == {"loss"}
    assert json.loads((trainer.folder / "metrics.jsonl").read_text().splitlines()[-1])["test/loss"] > 0
