"""Mistakes in how a task evaluates are reported in the first step, not after the first epoch."""

from __future__ import annotations

import copy
import logging
import multiprocessing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed.process_group import cleanup_ddp
from castoff.trainers.task import Evaluated, Splits, Sum, Task
from tests.trainers.checks.test_additivity import Lossy, mean_times_samples, total
from tests.trainers.optimization.test_weights import met
from tests.trainers.toys import Toy, config, digest, run

Sums = Callable[[Tensor, Tensor], Mapping[str, Sum]]


class Judged(Lossy):
    """Its metrics are what `judge` makes of scores and labels."""

    def __init__(self, judge: Sums):
        super().__init__(total)
        self.judge = judge

    def evaluate(self, model: nn.Module, batch: Any) -> Mapping[str, Sum] | Evaluated:
        self.counted += 1
        numbers, wanted = batch
        return self.judge(model(numbers), (wanted.squeeze(1).abs() * 2).long().clamp(max=3))


def right(scores: Tensor, labels: Tensor) -> Mapping[str, Sum]:
    hits = scores.argmax(1) == labels
    return {"loss": (scores.square().sum(), None), "right": (hits.sum(), len(hits))}


def right_means(scores: Tensor, labels: Tensor) -> Mapping[str, Sum]:
    """Each batch is one item."""
    return {"loss": (scores.square().mean(), 1), "size": (scores.abs().mean(), torch.tensor(1))}


def mean_loss(scores: Tensor, labels: Tensor) -> Mapping[str, Sum]:
    return {"loss": (scores.square().mean(), None), "size": (scores.abs().mean(), None)}


def mean_loss_of_items(scores: Tensor, labels: Tensor) -> Mapping[str, Sum]:
    return {"loss": (scores.square().mean(), scores.numel())}


def mean_measure(scores: Tensor, labels: Tensor) -> Mapping[str, Sum]:
    return {"loss": (scores.square().sum(), None), "size": (scores.abs().mean(), len(scores))}


def trained(trainer: TrainerDDP) -> None:
    trainer.run_training(*trainer.prepare_dataloaders()[:2])


def refused(task: Task, path: Path, error: type[Exception] = ConfigError, **sections: Any) -> str:
    """What ends a training in its first step."""
    trainer = TrainerDDP(0, {**config(path, num_epochs=2), **sections}, task)
    with pytest.raises(error) as raised:
        trained(trainer)
    assert trainer.step == 1
    return str(raised.value)


@pytest.mark.parametrize("judge", [mean_loss, mean_loss_of_items])
def test_a_mean_for_the_loss_is_an_error(judge: Sums, tmp_path: Path) -> None:
    said = refused(Judged(judge), tmp_path)
    assert "Judged.evaluate returns a mean for loss" in said
    assert ("and for the metrics size instead" in said) == (judge is mean_loss)
    assert 'return {"loss": (sum, None)}; for a mean, (mean * samples, None)' in said
    assert "check_first_step: false" in said


def test_a_mean_for_another_measure_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trained(TrainerDDP(0, config(tmp_path, num_epochs=1), Judged(mean_measure)))
    assert caplog.text.count("Judged.evaluate returns a mean for size instead of a sum") == 1
    assert "as ((guess == label).sum(), len(label))" in caplog.text


@pytest.mark.parametrize("judge", [right, right_means])
def test_a_correct_evaluation_is_not_reported(
    judge: Sums, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        trained(TrainerDDP(0, config(tmp_path, num_epochs=1), Judged(judge)))
    assert caplog.text == ""


class Wrong(Toy):
    """Has a mistake in one of the methods that judge."""

    def __init__(self, method: str):
        super().__init__(samples=64)
        self.method = method
        self.tests = False

    def _called(self, method: str) -> None:
        if method == self.method:
            raise NameError(f"name 'absent' in {method}")

    def evaluate(self, model: nn.Module, batch: Any) -> Mapping[str, Sum] | Evaluated:
        self._called("tester" if self.tests else "evaluate")
        sums = super().evaluate(model, batch)
        assert not isinstance(sums, Evaluated)
        return Evaluated(sums, 1)

    def finish(self, sums: Mapping[str, tuple[float, float]]) -> Mapping[str, float]:
        self._called("finish")
        return super().finish(sums)

    def measure(self, kept: Any) -> Mapping[str, float]:
        self._called("measure")
        return {"parts": len(kept)}

    def test_task(self) -> Task:
        other = copy.copy(self)
        other.tests = True
        return other


@pytest.mark.parametrize("method", ["evaluate", "finish", "measure"])
def test_a_mistake_in_what_judges_shows_in_the_first_step(
    method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert refused(Wrong(method), tmp_path, NameError) == f"name 'absent' in {method}"
    said = "Evaluating the first batch of the validation set failed." in caplog.text
    assert said == (method == "evaluate")


def test_one_in_the_test_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Perhaps nobody tests, as where a test set has no labels."""
    trained(TrainerDDP(0, config(tmp_path, num_epochs=1), Wrong("tester")))
    said = (
        "The first batch of the test set cannot be evaluated: NameError: name 'absent' in tester, in _called"
    )
    assert caplog.text.count(said) == 1


class OfTheSet(Judged):
    """What it measures is defined over the whole set."""

    def __init__(self) -> None:
        super().__init__(right)

    def evaluate(self, model: nn.Module, batch: Any) -> Evaluated:
        sums = super().evaluate(model, batch)
        assert not isinstance(sums, Evaluated)
        return Evaluated(sums, 1)

    def build_data(self) -> Splits:
        splits = super().build_data()
        return splits._replace(validation=splits.train)

    def finish(self, sums: Mapping[str, tuple[float, float]]) -> Mapping[str, float]:
        return {"loss": 1 / (sums["loss"][1] - 8)}

    def measure(self, kept: Any) -> Mapping[str, float]:
        return {"parts": len(kept)}


def test_what_a_batch_alone_does_not_define_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = TrainerDDP(0, config(tmp_path, num_epochs=1), OfTheSet())
    trained(trainer)
    assert "The first batch of the validation set cannot be evaluated: ZeroDivisionError" in caplog.text
    assert trainer.val_data


class ByBatches(Judged):
    """Its finish divides by batches, which are of one size."""

    def finish(self, sums: Mapping[str, tuple[float, float]]) -> Mapping[str, float]:
        return {"loss": sums["loss"][0] / sums["batches"][0]}


def test_a_finish_decides_what_is_a_mean(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def judge(scores: Tensor, labels: Tensor) -> Mapping[str, Sum]:
        return {"loss": (scores.square().mean(), None), "batches": (1.0, None)}

    with caplog.at_level(logging.WARNING):
        trained(TrainerDDP(0, config(tmp_path, num_epochs=1), ByBatches(judge)))
    assert caplog.text == ""


def test_the_switch_leaves_it_out(tmp_path: Path) -> None:
    trainer = TrainerDDP(0, config(tmp_path, num_epochs=2, check_first_step=False), Wrong("evaluate"))
    with pytest.raises(NameError):
        trained(trainer)
    assert trainer.epoch == 1


def test_a_metric_that_is_not_measured_is_an_error(tmp_path: Path) -> None:
    watched = {"kwargs": {"tasks": {"mine": {"metric": "accurcy"}}}}
    said = refused(Judged(right), tmp_path, early_stopping=watched)
    assert "early_stopping.kwargs.tasks.mine.metric: is 'accurcy', which validation does not measure" in said
    assert said.endswith("training.check_first_step: false skips this")


class Unreadable(Dataset[Any]):
    """Lacks a file."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        raise FileNotFoundError(f"validation-{index}.pt")


@pytest.mark.parametrize("workers", [0, 1])
def test_a_set_that_cannot_be_read_is_an_error_before_training(workers: int, tmp_path: Path) -> None:
    class Unread(Toy):
        def build_data(self) -> Splits:
            return super().build_data()._replace(validation=Unreadable())

    fields = {**config(tmp_path), "validation": {"num_workers": workers}}
    before = set(multiprocessing.active_children())
    with pytest.raises(FileNotFoundError, match=r"validation-\d+\.pt"):
        TrainerDDP(0, fields, Unread()).prepare_dataloaders()
    assert set(multiprocessing.active_children()) <= before


class Keeping(Judged):
    """Changes what it has and gets, in ways that torch does not count, and cannot be copied."""

    def __init__(self) -> None:
        super().__init__(mean_measure)
        self.rng = torch.Generator().manual_seed(0)
        self.center = torch.zeros(4)

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def build_model(self) -> nn.Module:
        model = nn.Sequential(super().build_model(), nn.BatchNorm1d(4))
        model.register_buffer("seen", torch.zeros(()))
        model.register_buffer("norm", torch.zeros(4))
        return model

    def build_data(self) -> Splits:
        kept = [(torch.rand(8), torch.rand(1)) for _ in range(24)]
        return Splits(kept, kept[:8], kept[8:16])

    def collate(self, samples: list[Any]) -> Any:
        return samples

    def loss(self, model: nn.Module, batch: Any) -> Any:
        model.seen = model.get_buffer("seen") + torch.rand((), generator=self.rng)
        self.center.mul_(0.9)
        return super().loss(model, [torch.stack(part) for part in zip(*batch, strict=True)])

    def evaluate(self, model: nn.Module, batch: Any) -> Any:
        for numbers, _ in batch:
            numbers.mul_(0.9)
        self.center += torch.rand((), generator=self.rng)
        model.get_buffer("norm").data.add_(1)
        model.train()
        return super().evaluate(model, [torch.stack(part) for part in zip(*batch, strict=True)])


@pytest.mark.parametrize("make", [lambda: Judged(mean_measure), Keeping])
def test_everything_is_left_as_it_was(make: Callable[[], Judged], tmp_path: Path) -> None:
    found = []
    for on in (True, False):
        torch.manual_seed(0)
        trainer = TrainerDDP(0, config(tmp_path / str(on), num_epochs=1, check_first_step=on), task := make())
        trained(trainer)
        own = getattr(task, "center", torch.zeros(0)).tolist()
        found.append((digest(trainer.model), task.counted, own, trainer.train_data, trainer.val_data))
    assert found[0] == found[1]


def said_on_ranks(folder: Path) -> list[str]:
    me = met()
    found = []
    for judge in (right, mean_loss):
        trainer = TrainerDDP(me.rank, config(folder / judge.__name__, num_epochs=1), Judged(judge))
        try:
            trained(trainer)
            found.append("")
        except ConfigError as error:
            found.append(str(error))
    cleanup_ddp()
    return found


@pytest.mark.usefixtures("for_real")
def test_all_ranks_agree(tmp_path: Path) -> None:
    first, second = run(said_on_ranks, tmp_path / "out", folder=tmp_path / "ranks", world_size=2)
    assert first == second
    assert first[0] == "" and "Judged.evaluate returns a mean for loss" in first[1]


def test_a_loss_that_is_not_a_mean_is_checked_by_its_sums(tmp_path: Path) -> None:
    """The default of `evaluate` repeats what `loss` gives, and nothing is reported twice."""
    trained(TrainerDDP(0, config(tmp_path, num_epochs=1), Lossy(mean_times_samples)))
