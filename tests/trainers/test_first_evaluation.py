"""Mistakes in how a task evaluates are reported in the first step, not after the first epoch."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from tests.trainers.test_additivity import Lossy, mean_times_samples, total
from tests.trainers.test_weights import met
from tests.trainers.toys import Toy, config, digest, run
from trainers.core.distributed import cleanup_ddp
from trainers.core.fields import ConfigError
from trainers.ddp import TrainerDDP
from trainers.task import Evaluated, Splits, Sum, Task

Sums = Callable[[Tensor, Tensor], Mapping[str, Sum]]


class Judged(Lossy):
    """Its measures are what `judge` makes of scores and labels."""

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
    with pytest.raises(error) as told:
        trained(trainer)
    assert trainer.step == 1
    return str(told.value)


@pytest.mark.parametrize("judge", [mean_loss, mean_loss_of_items])
def test_a_mean_for_the_loss_is_told(judge: Sums, tmp_path: Path) -> None:
    said = refused(Judged(judge), tmp_path)
    assert "config: Judged.evaluate gives a mean for loss" in said
    assert ("and for the measures size where" in said) == (judge is mean_loss)
    assert 'give {"loss": (sum, None)}; of a mean, (mean * samples, None)' in said
    assert "check_first_step: false" in said


def test_a_mean_for_another_measure_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trained(TrainerDDP(0, config(tmp_path, num_epochs=1), Judged(mean_measure)))
    assert caplog.text.count("Judged.evaluate gives a mean for size where a sum") == 1
    assert "as ((guess == label).sum(), len(label))" in caplog.text


@pytest.mark.parametrize("judge", [right, right_means])
def test_nothing_is_said_of_what_is_right(
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

    def tester(self) -> Task:
        other = copy.copy(self)
        other.tests = True
        return other


@pytest.mark.parametrize("method", ["evaluate", "finish", "measure", "tester"])
def test_a_mistake_in_what_judges_shows_in_the_first_step(
    method: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert refused(Wrong(method), tmp_path, NameError) == f"name 'absent' in {method}"
    which = "test" if method == "tester" else "validation"
    assert f"Evaluating the first batch of the {which} set failed." in caplog.text


def test_the_switch_leaves_it_out(tmp_path: Path) -> None:
    trainer = TrainerDDP(0, config(tmp_path, num_epochs=2, check_first_step=False), Wrong("evaluate"))
    with pytest.raises(NameError):
        trained(trainer)
    assert trainer.epoch == 1


def test_a_measure_that_nobody_gives_is_told(tmp_path: Path) -> None:
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
def test_a_set_that_cannot_be_read_is_told_before_training(workers: int, tmp_path: Path) -> None:
    class Unread(Toy):
        def build_data(self) -> Splits:
            return super().build_data()._replace(validation=Unreadable())

    fields = {**config(tmp_path), "validation": {"num_workers": workers}}
    with pytest.raises(FileNotFoundError, match=r"validation-\d+\.pt"):
        TrainerDDP(0, fields, Unread()).prepare_dataloaders()


def test_everything_is_left_as_it_was(tmp_path: Path) -> None:
    found = []
    for on in (True, False):
        task = Judged(mean_measure)
        trainer = TrainerDDP(0, config(tmp_path / str(on), num_epochs=1, check_first_step=on), task)
        trained(trainer)
        found.append((digest(trainer.model), task.counted, trainer.train_data, trainer.val_data))
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
    assert first[0] == "" and "Judged.evaluate gives a mean for loss" in first[1]


def test_a_loss_that_is_no_mean_is_judged_by_its_sums(tmp_path: Path) -> None:
    """The default of `evaluate` repeats what `loss` gives, and nothing is told twice."""
    trained(TrainerDDP(0, config(tmp_path, num_epochs=1), Lossy(mean_times_samples)))
