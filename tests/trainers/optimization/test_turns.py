"""Several optimizers: with one loss, or in turns with their own, on any number of ranks, and resumed."""

from __future__ import annotations

import copy
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer
from torch.utils.data import TensorDataset

from castoff.launcher.ranks import RankEnv
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed.process_group import cleanup_ddp, initialize_ddp
from castoff.trainers.optimization.optimizers import Optimizers
from castoff.trainers.task import Loss, Splits, Task
from tests.trainers.rounding import assert_rounded
from tests.trainers.toys import Ranks, config, digest, lasting_lines, run


class Killed(BaseException):
    """Stands for SIGKILL: nothing is saved on the way out."""


class Adversaries(Task):
    """A GAN in small, with BatchNorm's buffers if `draws`, whose discriminator learns by momentum."""

    turns: Any = ("critic", "maker")

    def __init__(self, draws: bool = False, dies_at: int = 0, lr: float = 0.05):
        self.draws = draws
        self.dies_at = dies_at
        self.lr = lr
        self.losses = 0
        self.batches: list[Tensor] = []

    def build_model(self) -> nn.Module:
        norm = nn.BatchNorm1d(6) if self.draws else nn.Identity()
        maker = nn.Sequential(nn.Linear(3, 6), norm, nn.Tanh(), nn.Linear(6, 3))
        model = nn.ModuleDict({"maker": maker, "critic": nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 1))})
        self.initial = copy.deepcopy(model)
        return model

    def build_data(self) -> Splits:
        numbers = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
        return Splits(TensorDataset(numbers[:48]), TensorDataset(numbers[48:]))

    def optimizers(self, model: Any) -> Any:
        return {
            "maker": AdamW(model["maker"].parameters(), lr=0.01),
            "critic": SGD(model["critic"].parameters(), lr=self.lr, momentum=0.9),
        }

    def loss(self, model: Any, batch: Any) -> Loss:
        (real,) = batch
        if model.training:
            self.losses += 1
            if self.losses == self.dies_at:
                raise Killed
        made = model["maker"](torch.randn_like(real) if self.draws else real.flip(1))
        judged = model["critic"](made).tanh()
        if self.state.turn == "maker":
            return Loss(-judged.sum(), metrics={"made": made.detach().sum()})
        if model.training:
            self.batches.append(real)
        return Loss((judged - model["critic"](real).tanh()).sum())


def trained(path: Path, task: Task, parallel: Mapping[str, Any] = {}, **training: Any) -> TrainerDDP:
    fields = config(path, **{"num_epochs": 2, "batch_size": 12, "check_first_step": False, **training})
    if type(task).optimizers is not Task.optimizers:
        fields["training"] = {name: one for name, one in fields["training"].items() if "optim" not in name}
    trainer = TrainerDDP(RankEnv.detect().rank, {**fields, "parallel": dict(parallel)}, task)
    trainer.run_training(*trainer.prepare_dataloaders()[:2])
    return trainer


def weights(trainer: TrainerDDP) -> list[Tensor]:
    return [each.detach().clone() for each in trainer.model.parameters()]


def plainly(task: Adversaries, clip: float | None = None) -> list[Tensor]:
    """The same steps in a loop of torch's alone, on the batches that a training had."""
    model: Any = task.initial
    optimizers = task.optimizers(model)
    for real in task.batches:
        for turn in task.turns:
            model.zero_grad()
            judged = model["critic"](model["maker"](real.flip(1))).tanh()
            loss = -judged.mean() if turn == "maker" else (judged - model["critic"](real).tanh()).mean()
            loss.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model[turn].parameters(), clip)
            optimizers[turn].step()
    return [each.detach() for each in model.parameters()]


@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("turns", [("critic", "maker"), ("maker", "critic"), ("critic", "critic", "maker")])
def test_turns_are_those_of_a_plain_loop(turns: Any, clip: float | None, tmp_path: Path) -> None:
    task = Adversaries()
    task.turns = turns
    found = weights(trained(tmp_path, task, clip_grad_norm=clip))
    task.batches = task.batches[:: turns.count("critic")]
    assert len(task.batches) == 8
    for mine, theirs in zip(found, plainly(task, clip), strict=True):
        assert_rounded(mine, theirs)


def on_ranks(path: Path, training: Mapping[str, Any]) -> tuple[list[Tensor], list[dict[str, float]]]:
    me = RankEnv.detect()
    if me.world_size > 1:
        initialize_ddp(me.rank, me.world_size, device="cpu")
    trainer = trained(path, Adversaries(), **training)
    cleanup_ddp()
    return weights(trainer), trainer.train_data


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize(("world_size", "micros"), [(1, 3), (3, 1), (2, 2)])
def test_the_world_size_changes_no_turn(world_size: int, micros: int, tmp_path: Path) -> None:
    training = {"clip_grad_norm": 0.05, "check_first_step": True, "ema_decay": 0.9}
    alone, sums = on_ranks(tmp_path / "one", training)
    shares = {"batch_size": 12 // world_size // micros, "gradient_accumulation_steps": micros}
    answers = run(
        on_ranks, tmp_path / "out", training | shares, folder=tmp_path / "ranks", world_size=world_size
    )
    for found, means in answers:
        for mine, theirs in zip(found, alone, strict=True):
            assert_rounded(mine, theirs)
        for mean, expected in zip(means, sums, strict=True):
            assert mean == pytest.approx(expected, rel=1e-4)
            assert mean["loss"] == pytest.approx(mean["critic"] + mean["maker"])
            assert set(mean) == {"loss", "critic", "maker", "made"}


OFTEN: dict[str, Any] = {"num_epochs": 3, "checkpoint_every_steps": 3, "log_every": 2, "ema_decay": 0.9}


@pytest.mark.parametrize("dies_at", [2, 5, 8, 9, 14, 15])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_killed_run_is_resumed_to_the_bit(dies_at: int, precision: str, tmp_path: Path) -> None:
    """Between two steps, and between the turns of one."""
    schedule = {"type": "cosine", "warmup_steps": 2}
    training: dict[str, Any] = {**OFTEN, "precision": precision, "schedule": schedule}
    whole = trained(tmp_path / "whole", Adversaries(True), **training)
    with pytest.raises(Killed):
        trained(tmp_path / "killed", Adversaries(True, dies_at), **training)
    resumed = trained(tmp_path / "killed", Adversaries(True), **training)
    assert digest(resumed.model) == digest(whole.model)
    assert digest(resumed.engine.judged) == digest(whole.engine.judged)
    assert lasting_lines(tmp_path / "whole" / "toy") == lasting_lines(tmp_path / "killed" / "toy")


def digested(path: Path, dies_at: int = 0) -> list[str]:
    me = RankEnv.detect()
    initialize_ddp(me.rank, me.world_size, device="cpu")
    shares: dict[str, Any] = {"batch_size": 2, "gradient_accumulation_steps": 2, "clip_grad_norm": 0.1}
    try:
        trainer = trained(path, Adversaries(True, dies_at), **OFTEN, **shares)
    except Killed:
        os.kill(os.getpid(), signal.SIGKILL)
    cleanup_ddp()
    return [digest(trainer.model), digest(trainer.engine.judged)]


@pytest.mark.usefixtures("for_real")
def test_also_on_several_ranks(tmp_path: Path) -> None:
    whole = Ranks(tmp_path / "whole", 3)  # meanwhile
    whole.start(digested, tmp_path / "one")
    killed = Ranks(tmp_path / "killed", 3)
    killed.start(digested, tmp_path / "two", 19)
    assert -signal.SIGKILL in killed.end()
    resumed = run(digested, tmp_path / "two", folder=tmp_path / "resumed", world_size=3)
    assert resumed == whole.answers()
    assert len({averaged for _, averaged in resumed}) == 1  # BatchNorm's buffers are each rank's own


def test_a_changed_rate_counts_from_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trained(tmp_path, Adversaries(), num_epochs=1)
    with caplog.at_level("INFO"):
        trainer = trained(tmp_path, Adversaries(lr=0.01), num_epochs=2)
    assert "task.optimizers: critic (SGD): lr: 0.01 from here on; the checkpoint has 0.05" in caplog.text
    assert [group["lr"] for group in trainer.engine.optimizer.param_groups] == [0.01, 0.01]


# --- One loss -------------------------------------------------------------------------------------


class Mixed(Task):
    """Different optimizers for matrices and the rest."""

    def __init__(self, *kinds: Any, dies_at: int = 0):
        self.kinds = kinds or (lambda each: SGD(each, lr=0.1, momentum=0.9), AdamW)
        self.dies_at = dies_at
        self.losses = 0

    def build_model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(3, 6), nn.Dropout(0.1), nn.Tanh(), nn.Linear(6, 1))

    def build_data(self) -> Splits:
        numbers = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
        return Splits(TensorDataset(numbers[:48]), TensorDataset(numbers[48:]))

    def optimizers(self, model: nn.Module) -> Any:
        matrices = [each for each in model.parameters() if each.dim() == 2]
        rest = [each for each in model.parameters() if each.dim() != 2]
        return {"matrices": self.kinds[0](matrices), "rest": self.kinds[1](rest)}

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        if model.training:
            self.losses += 1
            if self.losses == self.dies_at:
                raise Killed
        return Loss((model(batch[0]) - batch[0].sum(1, keepdim=True)).square().sum())


@pytest.mark.parametrize("dies_at", [2, 5, 7])
def test_several_with_one_loss_resume_to_the_bit(dies_at: int, tmp_path: Path) -> None:
    one_cycle: dict[str, Any] = {
        "lr_scheduler_type": torch.optim.lr_scheduler.OneCycleLR,
        "lr_scheduler_per": "step",
    }
    one_cycle["lr_scheduler_kwargs"] = {"max_lr": [0.1, 0.01], "total_steps": 12, "cycle_momentum": False}
    whole = trained(tmp_path / "whole", Mixed(), **OFTEN, **one_cycle)
    with pytest.raises(Killed):
        trained(tmp_path / "killed", Mixed(dies_at=dies_at), **OFTEN, **one_cycle)
    resumed = trained(tmp_path / "killed", Mixed(), **OFTEN, **one_cycle)
    assert digest(resumed.model) == digest(whole.model)
    states = [trainer.engine.optimizer.state_dict() for trainer in (whole, resumed)]
    assert [group["lr"] for group in states[0]["param_groups"]] == [
        group["lr"] for group in states[1]["param_groups"]
    ]
    assert states[0]["state"].keys() == states[1]["state"].keys() == set(range(4))


def test_rates_are_scaled_and_scheduled_for_each(tmp_path: Path) -> None:
    scaling = {"learning_rate": "linear", "base_world_size": 2}
    trainer = trained(tmp_path, Mixed(), num_epochs=1, scaling=scaling, schedule={"type": "linear"})
    rates = [group["lr"] for group in trainer.engine.optimizer.param_groups]
    assert rates == pytest.approx([0.05 / 4, 0.0005 / 4])


def test_other_optimizers_cannot_resume(tmp_path: Path) -> None:
    trained(tmp_path, Mixed(), num_epochs=1)
    with pytest.raises(ConfigError, match=r"the optimizers are matrices \(AdamW\), rest \(AdamW\), but the"):
        trained(tmp_path, Mixed(AdamW, AdamW), num_epochs=2)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has Muon from 2.9 on")
def test_muon_for_matrices(tmp_path: Path) -> None:
    muon: Any = torch.optim.Muon
    trainer = trained(tmp_path / "whole", Mixed(muon, AdamW), **OFTEN)
    with pytest.raises(Killed):
        trained(tmp_path / "killed", Mixed(muon, AdamW, dies_at=6), **OFTEN)
    resumed = trained(tmp_path / "killed", Mixed(muon, AdamW), **OFTEN)
    assert digest(resumed.model) == digest(trainer.model)


class Wrong(Mixed):
    def __init__(self, returned: Any, turns: Any = ()):
        super().__init__()
        self.returned = returned
        self.turns = turns

    def optimizers(self, model: nn.Module) -> Any:
        return self.returned(model)


def halves(model: nn.Module) -> dict[str, Optimizer]:
    return {name: SGD(model[number].parameters(), lr=0.1) for name, number in (("a", 0), ("b", 3))}  # type: ignore[index]


@pytest.mark.parametrize(
    ("task", "says"),
    [
        (Wrong(lambda _: []), r"task\.optimizers: returns a list; return an optimizer, or several in a dict"),
        (Wrong(lambda _: {}), r"task\.optimizers: returns a dict; return an optimizer"),
        (Wrong(lambda model: {"a": model}), r"returns a Sequential for a, which is not a torch\.optim"),
        (
            Wrong(lambda model: AdamW(model[0].parameters())),
            r"optimizers: leaves out 3\.weight, 3\.bias, for",
        ),
        (
            Wrong(lambda model: {**halves(model), "c": SGD(model[0].parameters())}),
            r"returns 0\.weight, 0\.bias twice; each belongs to one optimizer",
        ),
        (
            Wrong(lambda model: {"all": torch.optim.LBFGS(model.parameters())}),
            r"task\.optimizers: all: LBFGS computes the loss several times a step",
        ),
        (Wrong(halves, ("a",)), r"turns: is \['a'\], but must name all of the optimizers \['a', 'b'\]"),
        (Wrong(lambda _: None, ("a",)), r"turns: is \['a'\], but task\.optimizers returns no optimizers"),
    ],
)
def test_what_cannot_be_optimized_is_refused(task: Task, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=says):
        trained(tmp_path, task)


def test_the_configured_optimizer_is_one_too_many(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"optimizer_type: is set, but Mixed\.optimizers makes"):
        TrainerDDP(0, config(tmp_path), Mixed())
    with pytest.raises(ConfigError, match=r"optimizer_type: is missing; write !pyobject"):
        TrainerDDP(0, config(tmp_path, optimizer_type=None), Plain())


class Plain(Mixed):
    def optimizers(self, model: nn.Module) -> Any:
        return None


def test_a_single_one_is_taken_as_it_is(tmp_path: Path) -> None:
    trainer = trained(tmp_path, Wrong(lambda model: AdamW(model.parameters())))
    assert isinstance(trainer.engine.optimizer, Optimizers)
    assert trainer.step == 8


class Unlike(Adversaries):
    """Turns whose losses cannot be summed."""

    def __init__(self, how: str):
        super().__init__()
        self.how = how

    def loss(self, model: Any, batch: Any) -> Loss:
        loss = super().loss(model, batch)
        if self.state.turn == "critic":
            return loss
        return Loss(loss.total, 3) if self.how == "count" else Loss(loss.total, metrics={"critic": 1.0})


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("count", r"Unlike\.loss returned different counts in the turns of a batch \(None for critic, 3"),
        ("metric", r"Unlike\.loss returned the metric 'critic' for maker, which is taken"),
    ],
)
def test_turns_have_the_same_items(how: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=says):
        trained(tmp_path, Unlike(how))


class Mistaken(Adversaries):
    """Gives each turn the other's loss."""

    def loss(self, model: Any, batch: Any) -> Loss:
        made = model["maker"](batch[0])
        return Loss(made.sum() if self.state.turn == "critic" else model["critic"](made).sum())


def test_a_loss_of_other_parameters_is_reported_with_its_turn(tmp_path: Path) -> None:
    says = r"Mistaken\.loss returned a tensor that needs no gradient for total in the turn of critic; make it"
    with pytest.raises(ConfigError, match=says):
        trained(tmp_path, Mistaken())


def test_forgotten_turns(tmp_path: Path) -> None:
    task = Adversaries()
    task.turns = ()
    with pytest.raises(
        ConfigError, match=r'reads state\.turn .*; write turns = \("maker", "critic"\) in its'
    ):
        trained(tmp_path, task)


def test_turns_are_no_text(tmp_path: Path) -> None:
    task = Adversaries()
    task.turns = "critic"
    with pytest.raises(
        ConfigError, match=r"task\.turns: is 'critic'; it takes a tuple of names, \(\"critic\",\)"
    ):
        trained(tmp_path, task)
