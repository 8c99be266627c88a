"""A mean where a sum is due is reported in the first step; whatever else a loss may be is not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from castoff.trainers.checks.additivity import LOSS
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed.process_group import cleanup_ddp
from castoff.trainers.task import Loss, Task
from tests.trainers.optimization.test_weights import met
from tests.trainers.toys import Sensitive, Toy, config, digest, run
from tests.trainers.toys import train as trained


class Lossy(Toy):
    """Makes its loss of outputs and targets as `make` says."""

    def __init__(self, make: Callable[[Tensor, Tensor], Loss], begun: bool = False):
        super().__init__(samples=64)
        self.make = make
        self.begun = begun
        self.counted = 0

    def build_model(self) -> nn.Module:
        first = [Begun(), nn.Linear(8, 16), nn.BatchNorm1d(16)] if self.begun else [nn.Linear(8, 16)]
        return nn.Sequential(*first, nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 4))

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        self.counted += 1
        numbers, wanted = batch
        return self.make(model(numbers), (wanted.squeeze(1).abs() * 2).long().clamp(max=3))


def weights_of(labels: Tensor) -> Tensor:
    return labels.float() + 1


def mean(scores: Tensor, labels: Tensor) -> Loss:
    return Loss(cross_entropy(scores, labels))


def mean_of_tokens(scores: Tensor, labels: Tensor) -> Loss:
    weights = weights_of(labels)
    losses = cross_entropy(scores, labels, reduction="none")
    return Loss((losses * weights).sum() / weights.sum(), weights.sum())


def mean_with_means(scores: Tensor, labels: Tensor) -> Loss:
    size = scores.detach().abs().mean()
    return Loss(cross_entropy(scores, labels), metrics={"size": size, "all": size * len(labels)})


def mean_with_a_little_noise(scores: Tensor, labels: Tensor) -> Loss:
    return Loss(cross_entropy(scores + 0.05 * torch.randn_like(scores), labels))


MEANS = [mean, mean_of_tokens, mean_with_means, mean_with_a_little_noise]


def total(scores: Tensor, labels: Tensor) -> Loss:
    return Loss(cross_entropy(scores, labels, reduction="sum"), metrics={"right": torch.tensor(0.0)})


def mean_times_samples(scores: Tensor, labels: Tensor) -> Loss:
    return Loss(cross_entropy(scores, labels) * len(labels), len(labels))


def mean_as_one_item(scores: Tensor, labels: Tensor) -> Loss:
    """Each batch is one item."""
    return Loss(cross_entropy(scores, labels), 1)


def smoothed(scores: Tensor, labels: Tensor) -> Loss:
    return Loss(cross_entropy(scores, labels, reduction="sum", label_smoothing=0.2))


def weighted(scores: Tensor, labels: Tensor) -> Loss:
    weights = weights_of(labels)
    return Loss((cross_entropy(scores, labels, reduction="none") * weights).sum(), weights.sum())


def contrasted(scores: Tensor, labels: Tensor) -> Loss:
    """Against the others of its batch."""
    unit = normalize(scores, dim=1)
    return Loss(cross_entropy(unit @ unit.T / 0.1, torch.arange(len(unit)), reduction="sum"))


def mean_contrasted(scores: Tensor, labels: Tensor) -> Loss:
    """Is no sum, but nobody can tell from one batch."""
    unit = normalize(scores, dim=1)
    return Loss(cross_entropy(unit @ unit.T / 0.1, torch.arange(len(unit))))


def decorrelated(scores: Tensor, labels: Tensor) -> Loss:
    """As Barlow twins: of a matrix that all samples make together."""
    unit = normalize(scores - scores.mean(0), dim=0)
    matrix = unit.T @ unit
    return Loss((matrix - torch.eye(len(matrix))).square().sum() * len(labels))


def ranked(scores: Tensor, labels: Tensor) -> Loss:
    """Over all pairs, which it counts."""
    apart = scores[:, :1] - scores[:, 0] - (labels[:, None] - labels)
    return Loss(apart.square().sum() + len(labels) ** 2, len(labels) ** 2)


def variational(scores: Tensor, labels: Tensor) -> Loss:
    noise = (
        torch.randn_like(scores) * torch.randn(len(scores), 1) + torch.empty(len(scores), 1).exponential_()
    )
    time = torch.randint(1, 9, (len(scores),)) + torch.normal(torch.zeros(len(scores)), 3.0).abs()
    errors = ((scores + 9 * noise) ** 2).sum(1) * time
    return Loss(errors.sum())


def mean_variational(scores: Tensor, labels: Tensor) -> Loss:
    return Loss(variational(scores, labels).total / len(labels))


def in_much_noise(scores: Tensor, labels: Tensor) -> Loss:
    return Loss((torch.rand(len(labels)).log() * cross_entropy(scores, labels, reduction="none")).mean())


def sum_in_much_noise(scores: Tensor, labels: Tensor) -> Loss:
    return Loss((torch.rand(len(labels)).pow(-0.5) * cross_entropy(scores, labels, reduction="none")).sum())


def nothing(scores: Tensor, labels: Tensor) -> Loss:
    return Loss(scores.sum() * 0)


def not_in_eval_mode(scores: Tensor, labels: Tensor) -> Loss:
    if len(labels) < 8:
        raise ValueError("takes whole batches alone")
    return Loss(cross_entropy(scores, labels))


def below_zero(scores: Tensor, labels: Tensor) -> Loss:
    return Loss(-scores.softmax(1)[:, 0].sum())


RIGHT = [
    *(total, mean_times_samples, mean_as_one_item, smoothed, weighted, contrasted, mean_contrasted),
    *(decorrelated, ranked, variational, sum_in_much_noise, nothing, not_in_eval_mode, below_zero),
]


def made(path: Path, task: Task, rank: int = 0, **training: Any) -> TrainerDDP:
    trainer = TrainerDDP(rank, config(path, **training), task)
    trainer.model.train()
    return trainer


def looked_at(trainer: TrainerDDP) -> str:
    """What is said of a trainer's loss."""
    pair = trainer.prepare_dataloaders()[0].pair
    assert pair is not None
    try:
        trainer.first_step.additivity.check(LOSS, trainer.task, pair)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("make", MEANS)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_mean_is_reported(make: Any, precision: str, tmp_path: Path) -> None:
    said = looked_at(made(tmp_path, Lossy(make), precision=precision))
    assert "instead of a sum: sum it (reduction='sum'), or return Loss(mean * samples)" in said
    assert "For 4 samples the total is 1." in said and ", and for the same samples twice 1." in said
    both = "Lossy.loss returns a mean for total and for the metrics size" in said
    assert both == (make is mean_with_means) and "Lossy.loss returns a mean for total" in said


@pytest.mark.parametrize("make", RIGHT)
def test_nothing_else_is(make: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert looked_at(made(tmp_path, Lossy(make), precision="fp32")) == ""
    assert looked_at(made(tmp_path, Lossy(make), precision="bf16")) == ""
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("make", [mean_variational, in_much_noise])
def test_a_mean_is_reported_in_any_noise(make: Any, tmp_path: Path) -> None:
    """Which is the same for the samples twice."""
    assert "instead of a sum" in looked_at(made(tmp_path, Lossy(make), precision="fp32"))


def test_a_part_of_the_whole_batch_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As a divergence of the weights beside a sum: no mean, but divided as if it were one."""

    def make(scores: Tensor, labels: Tensor) -> Loss:
        return Loss(cross_entropy(scores, labels, reduction="sum") + 2000 + torch.rand(()))

    assert looked_at(made(tmp_path, Lossy(make), precision="fp32")) == ""
    (said,) = caplog.messages
    assert said.startswith(
        "Most of Lossy.loss's total does not grow with the samples: a part of it belongs to"
    )


def test_shapes_that_do_not_fit_are_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """(N, 1) minus (N,) is (N, N), without a word from torch."""

    def make(scores: Tensor, labels: Tensor) -> Loss:
        return Loss((scores[:, :1] - labels).square().sum())

    trainer = made(tmp_path, Lossy(make), num_epochs=1)
    trainer.run_training(*trainer.prepare_dataloaders()[:2])
    (warning,) = (record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)
    assert warning.startswith("Lossy.loss of the same 4 samples twice is four times as large, not twice: ")
    assert "outputs have the shape (N, 1) and labels the shape (N,)" in warning


def test_a_metric_alone_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def make(scores: Tensor, labels: Tensor) -> Loss:
        size = scores.detach().abs().mean()
        return Loss(cross_entropy(scores, labels, reduction="sum"), metrics={"size": size, "one": size * 0})

    assert looked_at(made(tmp_path, Lossy(make))) == ""
    assert "Lossy.loss returns a mean for size instead of a sum over the batch's items" in caplog.text


def test_in_the_first_step_it_ends_training(tmp_path: Path) -> None:
    """With a task's own loss in words that it can be found by; and the switch turns it off."""
    for on in (True, False):
        trainer = made(tmp_path / str(on), Lossy(mean), num_epochs=1, check_first_step=on)
        loaders = trainer.prepare_dataloaders()[:2]
        if on:
            with pytest.raises(ConfigError, match="returns a mean"):
                trainer.run_training(*loaders)
            assert trainer.step == 0
        else:
            trainer.run_training(*loaders)
            assert trainer.epoch == 1


def test_single_samples_are_left_alone(tmp_path: Path) -> None:
    trainer = made(tmp_path, Lossy(mean), num_epochs=1, batch_size=1)
    trainer.run_training(*trainer.prepare_dataloaders()[:2])


class Begun(nn.Module):
    """Initialises itself by the first samples that it sees."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8))
        self.register_buffer("calls", torch.zeros(()))
        self.begun = False

    def forward(self, numbers: Tensor) -> Tensor:
        if not self.begun:
            with torch.no_grad():
                self.scale.copy_(numbers.std(0) + 1)
            self.begun = True
        self.calls += 1
        return numbers / self.scale


def test_everything_is_left_as_it_was(tmp_path: Path) -> None:
    """Weights, buffers, attributes, random numbers and what a task counts: it trains the same bit for bit."""
    found = []
    for on in (True, False):
        task = Lossy(mean_times_samples, begun=True)
        trainer = made(tmp_path / str(on), task, num_epochs=1, check_first_step=on)
        trainer.run_training(*trainer.prepare_dataloaders()[:2])
        found.append((digest(trainer.model), task.counted, trainer.train_data))
    assert found[0] == found[1]
    whole = [
        trained(
            Sensitive(), config(tmp_path / f"whole-{on}", num_epochs=1, batch_size=4, check_first_step=on)
        )
        for on in (True, False)
    ]
    assert whole[0].weights == whole[1].weights and whole[0].seen == whole[1].seen


# --- Ranks ----------------------------------------------------------------------------------------


def gathered(scores: Tensor, labels: Tensor) -> Loss:
    """Waits for the other ranks, each time that it is computed."""
    every = [torch.empty_like(scores) for _ in range(dist.get_world_size())]
    dist.all_gather(every, scores.detach())
    return Loss(cross_entropy(scores, labels, reduction="sum") + 0 * torch.cat(every).sum())


def mean_gathered(scores: Tensor, labels: Tensor) -> Loss:
    loss = gathered(scores, labels)
    return Loss(loss.total / len(labels))


def mean_on_rank_0(scores: Tensor, labels: Tensor) -> Loss:
    """As where other ranks have samples that nobody can judge by."""
    return (mean if dist.get_rank() == 0 else total)(scores, labels)


def said_on_ranks(folder: Path) -> list[str]:
    me = met()
    makes = (mean, total, gathered, mean_gathered, mean_on_rank_0)
    found = [looked_at(made(folder / make.__name__, Lossy(make), me.rank)) for make in makes]
    cleanup_ddp()
    return found


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize("world_size", [2, 3])
def test_all_ranks_agree(world_size: int, tmp_path: Path) -> None:
    answers = run(said_on_ranks, tmp_path / "out", folder=tmp_path / "ranks", world_size=world_size)
    for each in answers:
        assert each == answers[0]
    of_mean, of_total, of_gathered, of_mean_gathered, of_one = answers[0]
    assert of_total == of_gathered == of_one == ""
    for said in (of_mean, of_mean_gathered):
        assert "instead of a sum" in said and ", on rank 0. If" in said


def test_the_log_is_quiet_about_what_is_right(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert looked_at(made(tmp_path, Lossy(weighted))) == ""
    assert caplog.text == ""
