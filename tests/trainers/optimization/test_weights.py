"""Weights are the same on all ranks, whichever way a task calls its model, and all of them are trained."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from castoff.launcher.ranks import RankEnv
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed.process_group import cleanup_ddp, initialize_ddp
from castoff.trainers.optimization.bits import bit_sums
from castoff.trainers.optimization.bits import digest as one_number
from castoff.trainers.task import Loss, Task
from tests.trainers.toys import Toy, config, digest, run


class Coder(nn.Module):
    """Two layers, with methods of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.norm = nn.Linear(8, 16), nn.Linear(16, 1), nn.BatchNorm1d(16)

    def encode(self, numbers: Tensor) -> Tensor:
        return self.norm(self.first(numbers)).tanh()  # type: ignore[no-any-return]

    def forward(self, numbers: Tensor) -> Tensor:
        return self.second(self.encode(numbers))  # type: ignore[no-any-return]


class Calls(Toy):
    """Computes the same in one of several ways, as `how` says."""

    def __init__(self, how: str):
        super().__init__(samples=64)
        self.how = how

    def build_model(self) -> nn.Module:
        self.kept = Coder()
        return self.kept

    def loss(self, model: Any, batch: Any) -> Loss:
        numbers, wanted = batch
        return Loss(((self.called(model, numbers) - wanted) ** 2).sum())

    def called(self, model: Any, numbers: Tensor) -> Tensor:
        if self.how == "kept":
            return self.kept(numbers)  # type: ignore[no-any-return]
        if self.how == "module":
            return getattr(model, "module", model)(numbers)  # type: ignore[no-any-return]
        if self.how == "methods":
            return model.second(model.encode(numbers))  # type: ignore[no-any-return]
        if self.how == "forward":
            return model.forward(numbers)  # type: ignore[no-any-return]
        return model(numbers)  # type: ignore[no-any-return]


HOWS = ("called", "kept", "module", "methods", "forward")


def train(task: Task, fields: dict[str, Any]) -> TrainerDDP:
    trainer = TrainerDDP(RankEnv.detect().rank, fields, task)
    training, validation, _ = trainer.prepare_dataloaders()
    trainer.run_training(training, validation)
    return trainer


def met() -> RankEnv:
    me = RankEnv.detect()
    if me.world_size > 1:
        initialize_ddp(me.rank, me.world_size, device="cpu")
    return me


def weights_by(folder: Path, hows: tuple[str, ...], more: list[dict[str, Any]]) -> list[list[str]]:
    """Digests of the weights: for each configuration those of each way."""
    met()
    found: list[list[str]] = []
    for number, given in enumerate(more):
        found.append([])
        for how in hows:
            fields = config(
                folder / f"{number}-{how}", num_epochs=1, log_every=9, **given.get("training", {})
            )
            fields["parallel"] = given.get("parallel", {})
            found[-1].append(digest(train(Calls(how), fields).model))
    cleanup_ddp()
    return found


CONFIGURATIONS: list[dict[str, Any]] = [
    {},
    {"training": {"gradient_accumulation_steps": 3}},
    {"parallel": {"find_unused_parameters": True}},
    {"parallel": {"static_graph": True}},
]


def test_the_model_is_the_same_on_one_rank(tmp_path: Path) -> None:
    for found in weights_by(tmp_path, HOWS[:4], CONFIGURATIONS[:1]):
        assert len(set(found)) == 1


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize("world_size", [2, pytest.param(3, marks=pytest.mark.long)])
def test_no_call_of_the_model_escapes_the_reduction(world_size: int, tmp_path: Path) -> None:
    ranks = run(
        weights_by,
        *(tmp_path / "out", HOWS, CONFIGURATIONS),
        folder=tmp_path / "ranks",
        world_size=world_size,
    )
    assert all(rank == ranks[0] for rank in ranks)
    for found in ranks[0]:
        assert len(set(found)) == 1


@pytest.mark.long
@pytest.mark.usefixtures("for_real")
def test_nor_where_it_is_compiled(tmp_path: Path) -> None:
    more = [{"training": {"compile": True}}]
    ranks = run(
        weights_by,
        *(tmp_path / "out", ("called", "methods"), more),
        folder=tmp_path / "ranks",
        world_size=2,
    )
    assert ranks[0] == ranks[1]


# --- What still makes ranks train apart -----------------------------------------------------------


class Apart(Toy):
    """Changes weights, or gradients, on its own: `how` says where."""

    def __init__(self, how: str):
        super().__init__(samples=64)
        self.how = how

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        weight = next(model.parameters())
        if self.how == "loss" and model.training:
            with torch.no_grad():
                weight.add_(1e-7 * batch[0].mean())
        return super().loss(model, batch)

    def after_evaluation(self, model: nn.Module) -> Mapping[str, float]:
        if self.how == "after_evaluation":
            with torch.no_grad():
                next(model.parameters()).mul_(0.9)
        return {}


class Langevin(torch.optim.SGD):
    """Adds noise of the global generator to the weights."""

    def step(self, closure: Any = None) -> Any:
        found: Any = super().step(closure)
        for group in self.param_groups:
            for each in group["params"]:
                each.data.add_(torch.randn_like(each), alpha=0.01)
        return found


class Private(torch.optim.SGD):
    """Adds it to the gradients."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for each in group["params"]:
                each.grad.add_(torch.randn_like(each), alpha=0.01)
        return super().step(closure)


class Unlike(Toy):
    """Begins with other weights on each rank."""

    def build_model(self) -> nn.Module:
        model = super().build_model()
        with torch.no_grad():
            next(model.parameters()).add_(RankEnv.detect().rank)
        return model


def said_of(folder: Path) -> dict[str, str]:
    """What ends the training of each, and how far it came."""
    met()
    found = {}
    tasks: dict[str, tuple[Task, dict[str, Any]]] = {
        "loss": (Apart("loss"), {}),
        "after_evaluation": (Apart("after_evaluation"), {}),
        "optimizer": (Toy(64), {"optimizer_type": Langevin}),
        "gradients": (Toy(64), {"optimizer_type": Private}),
        "unlike": (Unlike(64), {"ema_decay": 0.9, "num_epochs": 1}),
        "off": (Apart("loss"), {"check_first_step": False, "num_epochs": 1}),
    }
    for name, (task, training) in tasks.items():
        fields = config(folder / name, **{"log_every": 9, **training})
        trainer = TrainerDDP(RankEnv.detect().rank, fields, task)
        try:
            trainer.run_training(*trainer.prepare_dataloaders()[:2])
            found[name] = ""
        except ConfigError as error:
            found[name] = str(error)
        found[name] += f" (step {trainer.step})"
    cleanup_ddp()
    return found


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_that_train_apart_are_reported(world_size: int, tmp_path: Path) -> None:
    ranks = run(said_of, tmp_path / "out", folder=tmp_path / "ranks", world_size=world_size)
    assert all(rank == ranks[0] for rank in ranks)
    said = ranks[0]
    assert "after step 1" in said["gradients"] and "Its gradients also differ" in said["gradients"]
    for name in ("loss", "optimizer"):
        assert "after step 1 its weights are not the same on all ranks" in said[name]
        assert "The gradients of that step are the same" in said[name]
    assert " on rank 0, " in said["loss"] and f" on rank {world_size - 1} " in said["loss"]
    assert "0.weight of 4 parameters" in said["loss"]
    assert "draws no random numbers" in said["optimizer"]
    epoch = -(-51 // (8 * world_size))
    assert "after_evaluation" in said["after_evaluation"]
    assert f"after step {2 * epoch} its weights" in said["after_evaluation"], "its next checkpoint"
    assert said["unlike"].startswith(" (step")
    assert said["off"].startswith(" (step")


def test_one_rank_has_nobody_to_differ_from(tmp_path: Path) -> None:
    assert train(Apart("loss"), config(tmp_path, num_epochs=1)).epoch == 1


KINDS = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.complex64,
    torch.int32,
    torch.bool,
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_single_bit_makes_another_digest(kind: torch.dtype) -> None:
    for size in ((), (1,), (7,), (3, 5), (4, 6)):
        one = torch.randn(size).mul(9).to(kind)
        other = one.clone()
        flat = other.reshape(-1).view(torch.uint8)
        flat[-1] ^= 1
        pairs = [(one, one.clone(), True), (one, other, False)]
        if len(size) == 2:
            pairs += [(one.t(), one.t().contiguous(), True), (one[1:], other[1:], False)]
        for mine, theirs, same in pairs:
            assert torch.equal(bit_sums([mine]), bit_sums([theirs])) is same, (size, mine.stride())
    first, second = torch.tensor([1.0]), torch.tensor([2.0])
    orders = [one_number(bit_sums(pair)) for pair in ((first, second), (second, first))]
    assert not torch.equal(*orders)


# --- What no optimizer has ------------------------------------------------------------------------


class Thaws(Toy):
    """Unfreezes its first layer after some steps, or puts another in its place."""

    def __init__(self, how: str):
        super().__init__(samples=64)
        self.how = how

    def build_model(self) -> nn.Module:
        model = super().build_model()
        if self.how == "thaws":
            model[0].requires_grad_(False)  # type: ignore[index]
        return model

    def loss(self, model: Any, batch: Any) -> Loss:
        if model.training and self.state.step == 3:
            if self.how == "replaces":
                model[0] = nn.Linear(8, 16)
            model[0].requires_grad_(True)
        return super().loss(model, batch)


@pytest.mark.parametrize(("how", "was"), [("thaws", "was frozen"), ("replaces", "did not exist")])
@pytest.mark.parametrize("more", [{}, {"checkpoint_every_steps": 5}])
def test_a_parameter_that_no_optimizer_has(how: str, was: str, more: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        train(Thaws(how), config(tmp_path, **more))
    step = more.get("checkpoint_every_steps", 7)
    assert f"model: at step {step} 0.weight, 0.bias requires a gradient, but {was} when" in str(error.value)
    assert "Thaws.build_model" in str(error.value)
    kept = tmp_path / "toy" / "checkpoints" / f"step-{step:010d}" / "manifest.json"
    assert kept.exists(), "the steps so far are not lost"
    train(Thaws(how), config(tmp_path / "off", num_epochs=1, check_first_step=False))
