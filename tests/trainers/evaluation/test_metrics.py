"""Early stopping as QuantumGrav has it, and exact means."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

from castoff.trainers.configuration.config import Evaluation, Training
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.data.loaders import evaluation_loader
from castoff.trainers.distributed.process_group import RankContext, cleanup_ddp, initialize_ddp
from castoff.trainers.evaluation.early_stopping import DefaultEarlyStopping
from castoff.trainers.evaluation.metrics import evaluate, evaluating
from castoff.trainers.task import Splits
from tests.trainers.toys import Toy, run

CPU = torch.device("cpu")


def stops_after(stopping: DefaultEarlyStopping, *metrics: dict[str, float]) -> int | None:
    """At which evaluation it says stop, from 1."""
    return next((number for number, each in enumerate(metrics, 1) if stopping(each)), None)


def losses(*values: float) -> list[dict[str, float]]:
    return [{"loss": value} for value in values]


def test_patience() -> None:
    assert stops_after(DefaultEarlyStopping(patience=2), *losses(3, 2, 2, 2, 1)) == 4
    assert stops_after(DefaultEarlyStopping(patience=2), *losses(3, 2, 2, 1, 1)) is None


def test_delta_must_be_exceeded() -> None:
    task = {"t": {"metric": "loss", "delta": 1.0}}
    assert stops_after(DefaultEarlyStopping(task, patience=1), *losses(5, 4.5)) == 2
    assert stops_after(DefaultEarlyStopping(task, patience=1), *losses(5, 4)) == 2
    assert stops_after(DefaultEarlyStopping(task, patience=1), *losses(5, 3.9)) is None


def test_grace_periods_keep_the_patience() -> None:
    task = {"t": {"metric": "loss", "grace_period": 3}}
    assert stops_after(DefaultEarlyStopping(task, patience=1), *losses(1, 2, 2, 2)) == 4


def test_max() -> None:
    task = {"t": {"metric": "f1", "mode": "max"}}
    stopping = DefaultEarlyStopping(task, patience=1)
    assert not stopping({"f1": 0.5})
    assert stopping.found_better_model
    assert stopping({"f1": 0.5})
    assert not stopping.found_better_model


def test_any_and_all() -> None:
    tasks = {0: {"metric": "a"}, 1: {"metric": "b"}}
    sequence = [{"a": 3.0, "b": 3.0}, {"a": 2.0, "b": 4.0}]
    either = DefaultEarlyStopping(tasks, patience=1, mode="any")
    assert stops_after(either, *sequence) is None
    assert either.best == {"0": 2.0, "1": 3.0}
    assert stops_after(DefaultEarlyStopping(tasks, patience=1, mode="all"), *sequence) == 2


def test_a_first_score_to_beat() -> None:
    task = {"t": {"metric": "loss", "init_best_score": 1.0}}
    assert stops_after(DefaultEarlyStopping(task, patience=1), *losses(2)) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"patience": 0},
        {"mode": "some"},
        {"tasks": {"t": {}}},
        {"tasks": {"t": {"metric": "x", "mode": "up"}}},
        {"tasks": {"t": {"metric": "x", "delta": "much"}}},
        {"tasks": {"t": {"metric": "x", "delta": -0.1}}},
        {"tasks": {"t": {"metric": "x", "grace_perod": 3}}},
        {"tasks": {"t": 5}},
        {"tasks": [{"metric": "x"}]},
        {"patience": "abc"},
    ],
)
def test_what_makes_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"early_stopping\.kwargs\."):
        DefaultEarlyStopping(**wrong)


def test_an_infinite_score_to_begin_with_is_none_yet() -> None:
    early = DefaultEarlyStopping({"t": {"metric": "loss", "init_best_score": float("inf")}})
    early({"loss": 3.0})
    assert early.found_better_model


def test_a_metric_that_nobody_measures() -> None:
    with pytest.raises(
        ConfigError, match=r"t\.metric: is 'f1', which validation does not measure; name .*loss"
    ):
        DefaultEarlyStopping({"t": {"metric": "f1"}})({"loss": 1.0})


def test_an_average_resumes_from_its_state() -> None:
    one, two = DefaultEarlyStopping(patience=3), DefaultEarlyStopping(patience=3)
    for value in losses(3, 2, 2):
        one(value)
    two.load_state_dict(one.state_dict())
    assert [one(each) for each in losses(2, 2, 1)] == [two(each) for each in losses(2, 2, 1)]


def test_each_part_of_a_model_is_in_its_mode_again() -> None:
    """As a frozen BatchNorm, which its task has put in eval mode for good."""
    model = nn.Sequential(nn.Dropout(), nn.BatchNorm1d(1).eval())
    with evaluating(model):
        assert not any(module.training for module in model.modules())
    assert [module.training for module in model.modules()] == [True, True, False]


class Exact(Toy):
    """A model whose loss of each sample is its number."""

    def build_data(self) -> Splits:
        numbers = torch.arange(float(self.samples))[:, None]
        return Splits(*[TensorDataset(numbers, torch.zeros(self.samples, 1))] * 3)


def mean_loss(samples: int, size: int) -> tuple[dict[str, float], float]:
    """Over all ranks, as this one has it."""
    import os

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    context = initialize_ddp(rank, world, device="cpu") if world > 1 else RankContext(0, 1, CPU)
    model = nn.Sequential(nn.Identity(), nn.BatchNorm1d(1))
    task = Exact(samples)
    settings = Training(path="", num_epochs=1, batch_size=size, optimizer_type=None)
    found = []
    for length in range(1, samples + 1):
        data = TensorDataset(*(part[:length] for part in task.build_data().test.tensors))
        loader = evaluation_loader(data, Evaluation(), settings, task.collate, rank=rank, world_size=world)
        found.append(evaluate(task, model, loader, context))
    cleanup_ddp()
    spreads = [None if math.isnan(each.spread) else each.spread for each in found]  # of a single batch
    return [each["loss"] for each in found], spreads  # type: ignore[return-value]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_q6_q17_validation_is_exact_whatever_the_ranks(world: int, tmp_path: Path) -> None:
    """Any number of samples on any number of ranks, with a batch norm in the model."""
    answers = run(mean_loss, 12, 3, folder=tmp_path, world_size=world)
    for means, _ in answers:
        for length, mean in enumerate(means, 1):
            exact = sum(number**2 for number in range(length)) / length / (1 + 1e-5)
            assert mean == pytest.approx(exact, rel=1e-6)
    assert all(answer == answers[0] for answer in answers)
