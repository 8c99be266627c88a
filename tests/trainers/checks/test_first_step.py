"""What the first step finds on any number of ranks, and what it says of it."""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import dropout

from castoff.launcher.ranks import RankEnv
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed.process_group import cleanup_ddp, initialize_ddp
from castoff.trainers.task import Loss, Task
from tests.trainers.toys import Toy, config, run


def trained(path: Path, task: Task, parallel: Mapping[str, Any] | None = None, **training: Any) -> TrainerDDP:
    fields = {**config(path, num_epochs=1, **training), "parallel": dict(parallel or {})}
    trainer = TrainerDDP(RankEnv.detect().rank, fields, task)
    trainer.run_training(*trainer.prepare_dataloaders()[:2])
    return trainer


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Any:
    """What is warned of."""
    return lambda: [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


# --- Gradients ------------------------------------------------------------------------------------


class Apart(Toy):
    """Learns by a network that is not its model, whose outputs count nothing."""

    def __init__(self, how: str):
        super().__init__(samples=64)
        self.how = how
        self.other = nn.Linear(8, 1)

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        numbers, wanted = batch
        if self.how == "another":
            return Loss(((self.other(numbers) - wanted) ** 2).sum(), len(numbers))
        if self.how == "rounded":
            return Loss(((model(numbers).round() - wanted) ** 2).sum())
        zero = (model(numbers) * 0).sum()
        return Loss(zero, 0) if self.how == "no item" else Loss(zero + (self.how == "times 0") * len(numbers))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("another", "the loss of step 1 depends on no parameter of the model"),
        ("rounded", "every gradient of step 1 is zero"),
        ("times 0", "every gradient of step 1 is zero"),
    ],
)
def test_a_loss_that_does_not_depend_on_the_model(how: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=says):
        trained(tmp_path, Apart(how))
    assert not (tmp_path / "toy" / "checkpoints").exists()
    trained(tmp_path / "unchecked", Apart(how), check_first_step=False)


def test_a_loss_of_zero_may_be_right(tmp_path: Path, warnings: Any) -> None:
    """Of a model that needs no more training, as of one whose outputs count nothing."""
    trained(tmp_path, Apart("nothing"))
    assert any("the loss and every gradient of step 1 are zero" in said for said in warnings())


def test_a_step_without_items_is_no_mistake(tmp_path: Path) -> None:
    assert trained(tmp_path, Apart("no item")).step


class Lazy(Toy):
    """Has a layer that its loss does not use."""

    def build_model(self) -> nn.Module:
        layers: Any = super().build_model()
        layers[0].idle = nn.Linear(2, 2)
        return layers  # type: ignore[no-any-return]


def test_an_unused_layer_is_named_on_one_rank(tmp_path: Path, warnings: Any) -> None:
    trained(tmp_path / "meant", Lazy(64), {"find_unused_parameters": True})
    assert warnings() == []
    trained(tmp_path, Lazy(64))
    (said,) = warnings()
    assert "the loss of step 1 does not depend on 0.idle.weight, 0.idle.bias: these parameters" in said
    assert "on several ranks training would stop here; call requires_grad_(False) in build_model" in said


def said_on_ranks(folder: Path) -> str:
    me = RankEnv.detect()
    initialize_ddp(me.rank, me.world_size, device="cpu")
    try:
        trained(folder, Apart("another"))
    except ConfigError as error:
        return str(error)
    finally:
        cleanup_ddp()
    return ""


@pytest.mark.usefixtures("for_real")
def test_several_ranks_say_the_same(tmp_path: Path) -> None:
    for said in run(said_on_ranks, tmp_path / "out", folder=tmp_path / "ranks", world_size=2):
        assert "the loss of step 1 depends on no parameter of the model" in said


# --- Modes ----------------------------------------------------------------------------------------


class Functional(nn.Module):
    """Asks for its mode itself, as attention does."""

    def forward(self, numbers: Tensor) -> Tensor:
        return dropout(numbers, 0.1, self.training)


class Pretrained(Toy):
    def __init__(self, how: str):
        super().__init__(samples=64, dropout=0.0 if how == "none" else 0.2)
        self.how = how

    def build_model(self) -> nn.Module:
        model: Any = super().build_model()
        if self.how == "functional":
            model[2] = Functional()
        if self.how == "frozen":
            model[0] = nn.Sequential(model[0], nn.BatchNorm1d(16)).eval().requires_grad_(False)
        elif self.how == "part":
            model[0] = nn.Sequential(model[0], nn.BatchNorm1d(16)).eval()
        elif self.how != "training":
            model.eval()
        return model  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ("whole", "the model"),
        ("functional", "the model"),
        ("part", "0"),
        ("frozen", None),
        ("none", None),
        ("training", None),
    ],
)
def test_a_model_in_eval_mode(how: str, named: str | None, tmp_path: Path, warnings: Any) -> None:
    trained(tmp_path, Pretrained(how))
    if named is None:
        assert warnings() == []
    else:
        (said,) = warnings()
        assert said.startswith(
            f"Pretrained.build_model leaves {named} in eval mode, so it trains without drop"
        )
    trained(tmp_path / "unchecked", Pretrained(how), check_first_step=False)
    assert len(warnings()) == (named is not None)


# --- State ----------------------------------------------------------------------------------------


class Stateful(Toy):
    """Changes a state in each step; `kept`: and has it in its checkpoints, in one way or another."""

    def __init__(self, what: str, kept: bool):
        super().__init__(samples=64)
        self.what, self.kept = what, kept
        self.mean: Any = 0.0
        self.queue = torch.zeros(5)
        self.array = numpy.zeros(3)
        self.drawn = torch.Generator().manual_seed(0)
        self.python = random.Random(0)
        self.numpy = numpy.random.default_rng(0)
        self.teacher = nn.Linear(8, 1)
        self.deep: Any = {"moments": [0.0, {"second": torch.zeros(())}]}
        self.fixed = torch.ones(3)

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        loss = super().loss(model, batch)
        if model.training:
            getattr(self, f"_{self.what}")(float(loss.total.detach()))
        return loss

    def _mean(self, value: float) -> None:
        self.mean = 0.9 * self.mean + value

    def _queue(self, value: float) -> None:
        self.queue = torch.cat([self.queue[1:], torch.tensor([value])])

    def _array(self, value: float) -> None:
        self.array[1] = value

    def _drawn(self, value: float) -> None:
        torch.rand(1, generator=self.drawn)

    def _python(self, value: float) -> None:
        self.python.random()

    def _numpy(self, value: float) -> None:
        self.numpy.random()

    def _teacher(self, value: float) -> None:
        self.teacher.weight.data.mul_(0.9)

    def _deep(self, value: float) -> None:
        self.deep["moments"][1]["second"] += value

    def _memo(self, value: float) -> None:
        vars(self).setdefault("memo", {})[value] = value  # is made anew by whoever needs it

    def state_dict(self) -> dict[str, Any]:
        if not self.kept:
            return {"fixed": self.fixed}
        return {
            "mean": torch.tensor(self.mean, dtype=torch.float64),
            "queue": self.queue.tolist(),
            "array": torch.from_numpy(self.array),
            "drawn": self.drawn.get_state(),
            "python": list(self.python.getstate()[1]),
            "numpy": self.numpy.bit_generator.state,
            "teacher": self.teacher.state_dict(),
            "moments": self.deep["moments"],
        }


WHAT = ["mean", "queue", "array", "drawn", "python", "numpy", "teacher", "deep"]


@pytest.mark.parametrize("what", WHAT)
def test_state_that_no_checkpoint_holds(what: str, tmp_path: Path, warnings: Any) -> None:
    trained(tmp_path / "kept", Stateful(what, kept=True))
    assert warnings() == []
    trained(tmp_path / "lost", Stateful(what, kept=False))
    (said,) = warnings()
    assert said.startswith(f"A step changes Stateful.{what}, which no checkpoint holds: a resumed run begins")


def test_what_is_made_when_it_is_first_needed_is_no_state(tmp_path: Path, warnings: Any) -> None:
    trained(tmp_path, Stateful("memo", kept=False))
    assert warnings() == []


class Counting(nn.Module):
    """Has a state of its own beside its buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("lasting", torch.zeros(()))
        self.register_buffer("passing", torch.zeros(()), persistent=False)
        self.moment = 0.0

    def forward(self, numbers: Tensor) -> Tensor:
        for number, buffer in enumerate(self.buffers()):
            buffer += 1.5 + number
        self.moment += 2.5
        return numbers


class WithParts(Toy):
    def build_model(self) -> nn.Module:
        return nn.Sequential(Counting(), super().build_model())


def test_state_of_a_model_that_no_checkpoint_holds(tmp_path: Path, warnings: Any) -> None:
    trained(tmp_path, WithParts(64))
    (said,) = warnings()
    assert said.startswith("A step changes model.0.moment, model.0.passing, which no checkpoint holds")


# --- Collectives ----------------------------------------------------------------------------------


class Gathering(Toy):
    """Waits for the other ranks in each batch."""

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        loss = super().loss(model, batch)
        dist.all_reduce(loss.total.detach().clone())
        return loss


def gathered(folder: Path) -> list[str]:
    """What is said of 20 validation samples in batches of 8, and of 10."""
    me = RankEnv.detect()
    initialize_ddp(me.rank, me.world_size, device="cpu")
    found = []
    for size in (8, 10):
        fields = config(folder / str(size), num_epochs=1)
        fields["validation"] = {"batch_size": size}
        trainer = TrainerDDP(me.rank, fields, Gathering(samples=200))
        try:
            trainer.run_training(*trainer.prepare_dataloaders()[:2])
            found.append("")
        except ConfigError as error:
            found.append(str(error))
    cleanup_ddp()
    return found


@pytest.mark.usefixtures("for_real")
def test_collectives_in_uneven_validation_rounds(tmp_path: Path) -> None:
    for uneven, even in run(gathered, tmp_path / "out", folder=tmp_path / "ranks", world_size=2):
        assert "Gathering.loss, which evaluate calls, waits for other ranks in each batch" in uneven
        assert "3 of them are divided among 2 ranks" in uneven
        assert even == ""
