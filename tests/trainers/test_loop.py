"""The loop: what a task may do in it, what happens when, and what comes of trouble."""

from __future__ import annotations

import functools
import logging
import math
import random
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ExponentialLR, ReduceLROnPlateau, StepLR

from castoff.launcher.ranks import RankEnv
from castoff.trainers.checkpointing.checkpoints import Checkpoints, load_part
from castoff.trainers.checkpointing.errors import CheckpointError
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.ddp import TrainerDDP
from castoff.trainers.distributed.process_group import RankContext, cleanup_ddp, initialize_ddp
from castoff.trainers.distributed.randomness import seed_all
from castoff.trainers.evaluation.metrics import evaluate
from castoff.trainers.optimization.engine import NonFiniteError
from castoff.trainers.reporting.metrics_file import MetricsFile
from castoff.trainers.reporting.throughput import Throughput
from castoff.trainers.task import Loss, Task
from tests import patience
from tests.cases import others_long
from tests.trainers.logged import unwrapped
from tests.trainers.synchronisations import counted
from tests.trainers.toys import Ranks, Toy, config, digest, run


def trained(
    path: Path, task: Task | None = None, sections: Mapping[str, Any] | None = None, **training: Any
) -> TrainerDDP:
    trainer = TrainerDDP(0, {**config(path, **training), **(sections or {})}, task or Toy(40))
    trainer.run_training(*trainer.prepare_dataloaders()[:2])
    return trainer


def lines(trainer: TrainerDDP, name: str) -> dict[int, Any]:
    """What metrics.jsonl has of a measure, by step."""
    found = MetricsFile(trainer.folder / "metrics.jsonl").read()
    return {line["step"]: line[name] for line in found if name in line}


# --- A task's own methods ------------------------------------------------------------------------


class Whole(Toy):
    """Uses everything that a task may have."""

    def __init__(self) -> None:
        super().__init__(40)
        self.calls: list[str] = []
        self.seen: list[tuple[int, int]] = []
        self.kept = 0

    def setup(self, context: RankContext) -> None:
        self.calls.append(f"setup at step {self.state.step}")

    def build_model(self) -> nn.Module:
        self.calls.append("build_model")
        return super().build_model()

    def build_data(self) -> Any:
        self.calls.append("build_data")
        return super().build_data()

    def parameters(self, model: nn.Module) -> Any:
        weights = [each for each in model.parameters() if each.dim() > 1]
        biases = [each for each in model.parameters() if each.dim() == 1]
        return [{"params": weights}, {"params": biases, "lr": 0.001}]

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        if model.training:
            self.seen.append((self.state.step, self.state.epoch))
            self.kept += 1
        return super().loss(model, batch)

    def finish(self, sums: Mapping[str, tuple[float, float]]) -> Mapping[str, float]:
        total, count = sums["loss"]
        return {
            "loss": total / count,
            "perplexity": math.exp(total / count / 100),
            "rewards/margins": 1 / 3,
        }

    def after_evaluation(self, model: nn.Module) -> Mapping[str, float]:
        assert not model.training
        assert not torch.is_grad_enabled()
        return {"longest": float(self.state.step), "generation/length": 7.0}

    def state_dict(self) -> dict[str, Any]:
        return {"kept": self.kept}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.kept = state["kept"]


def test_a_task_is_asked_for_everything(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    task = Whole()
    caplog.set_level("INFO")
    trainer = trained(tmp_path, task, num_epochs=2)
    (line, _) = (line for line in caplog.messages if line.startswith("Validation: "))
    metrics = trainer.val_data[0]
    shown = f", perplexity={metrics['perplexity']:.4g}, rewards/margins=0.3333, longest=4"
    assert line.endswith(shown)  # without what stands in metrics.jsonl under a name of its own
    assert task.calls == ["setup at step 0", "build_model", "build_data"]
    assert task.seen == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 1), (5, 1), (6, 1), (7, 1)]
    assert [group["lr"] for group in trainer.engine.optimizer.param_groups] == [0.01, 0.001]
    (first, second) = trainer.val_data
    assert second["perplexity"] == math.exp(second["loss"] / 100)
    assert lines(trainer, "val/longest") == {4: 4.0, 8: 8.0}
    assert lines(trainer, "generation/length") == {4: 7.0, 8: 7.0}
    longer = Whole()
    assert trained(tmp_path, longer, num_epochs=3).val_data[:2] == [first, second]
    assert longer.kept == 12


class Drawn(Toy):
    def setup(self, context: RankContext) -> None:
        self.reference = torch.rand(3)


def test_what_a_setup_draws_is_the_same_again(tmp_path: Path) -> None:
    first, second = Drawn(40), Drawn(40)
    for task in (first, second):
        TrainerDDP(0, config(tmp_path), task)
    assert torch.equal(first.reference, second.reference)


class Caching(Toy):
    """Draws in its setup what rank 0 alone may have to draw there."""

    def __init__(self, drawn: int):
        super().__init__(40)
        self.drawn = drawn

    def setup(self, context: RankContext) -> None:
        torch.rand(self.drawn)


def test_weights_begin_the_same_whatever_a_setup_draws(tmp_path: Path) -> None:
    first, second = (TrainerDDP(0, config(tmp_path), Caching(drawn)) for drawn in (0, 3))
    assert digest(first.model) == digest(second.model)


class Typed(Toy):
    """Notes in which type the model computes where it is judged."""

    def __init__(self) -> None:
        super().__init__(40)
        self.types: list[torch.dtype] = []

    def setup(self, context: RankContext) -> None:
        assert self.state.folder is not None and self.state.folder.is_absolute()
        with self.state.autocast():
            self.types.append(self.build_model()(torch.ones(1, 8)).dtype)

    def evaluate(self, model: nn.Module, batch: Any) -> Any:
        self.types.append(model(batch[0]).dtype)
        return super().evaluate(model, batch)

    def after_evaluation(self, model: nn.Module) -> Mapping[str, float]:
        self.types.append(model(torch.ones(1, 8)).dtype)
        return {}


def test_a_model_is_set_up_and_judged_in_the_precision_that_it_is_trained_in(tmp_path: Path) -> None:
    task = Typed()
    trainer = trained(tmp_path, task, num_epochs=1, precision="bf16", check_first_step=False)
    trainer.run_test(trainer.prepare_dataloaders()[2])
    assert task.types == [torch.bfloat16] * 4


# --- What happens when ---------------------------------------------------------------------------


def test_steps_may_be_what_ends_it(tmp_path: Path) -> None:
    """In the middle of an epoch, with a validation at the end."""
    trainer = trained(
        tmp_path, num_epochs=None, num_steps=6, log_every=2, sections={"validation": {"every_steps": 4}}
    )
    assert (trainer.step, trainer.epoch) == (6, 1)
    assert list(lines(trainer, "val/loss")) == [4, 6]
    assert list(lines(trainer, "train/loss")) == [2, 4, 6]
    assert list(lines(trainer, "train_epoch/loss")) == [4]
    assert trainer.checkpoints.all()[-1].name.endswith("6")


def test_the_last_step_is_judged_once(tmp_path: Path) -> None:
    """Whatever makes it due, and however often a training that is over is begun again; it stays the best."""
    for _ in range(2):
        trainer = trained(tmp_path, num_epochs=2, sections={"validation": {"every_steps": 4}})
        assert len(trainer.val_data) == 2
        assert trainer.val_data[1]["loss"] < trainer.val_data[0]["loss"]
        best = trainer.checkpoints.best()
        assert best is not None
        assert best.name.endswith("8")
    found = MetricsFile(trainer.folder / "metrics.jsonl").read()
    assert [line["step"] for line in found if "val/loss" in line] == [4, 8]


def test_so_many_steps_are_so_many_epochs(tmp_path: Path) -> None:
    """Where the last step is the last of an epoch."""
    by_steps = trained(tmp_path / "steps", num_epochs=None, num_steps=8)
    by_epochs = trained(tmp_path / "epochs", num_epochs=2)
    assert by_steps.train_data == by_epochs.train_data
    assert by_steps.val_data == by_epochs.val_data
    assert by_steps.epoch == 2


def test_the_learning_rate_is_that_of_each_step(tmp_path: Path) -> None:
    trainer = trained(tmp_path, num_epochs=2, schedule={"type": "linear", "warmup_steps": 4})
    rates = lines(trainer, "train/lr")
    assert lines(trainer, "lr") == {}, "one name is enough"
    assert rates[1] == pytest.approx(0.0025)
    assert rates[4] == pytest.approx(0.01)
    assert rates[8] < rates[6] < 0.01


class Line(Toy):
    """One weight, whose gradient is 1: each step takes the learning rate off it."""

    def build_model(self) -> nn.Module:
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        return model

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        return Loss(model(torch.ones(len(batch[0]), 1)).sum())


def test_and_is_what_the_step_takes(tmp_path: Path) -> None:
    """Also the first one of a resumed run."""
    falls: dict[str, Any] = {
        "schedule": {"type": "linear", "warmup_steps": 4, "steps": 8},
        "num_epochs": None,
    }
    falls |= {"optimizer_type": torch.optim.SGD, "optimizer_kwargs": {"lr": 1.0}}
    for steps, taken in ((3, 0.25 + 0.5 + 0.75), (6, 1.5 + 1.0 + 1.0 + 0.75)):
        trainer = trained(tmp_path, Line(40), num_steps=steps, **falls)
        (weight,) = trainer.model.parameters()
        assert weight.item() == pytest.approx(-taken)


@pytest.mark.parametrize(
    ("scheduler", "rate"),
    [
        ({"lr_scheduler_type": StepLR, "lr_scheduler_args": [2, 0.5], "lr_scheduler_per": "step"}, 0.01 / 16),
        ({"lr_scheduler_type": ReduceLROnPlateau, "lr_scheduler_args": ["min", 0.5, 0, 0.99]}, 0.005),
    ],
)
def test_schedulers_are_stepped_at_steps_and_validations(
    scheduler: dict[str, Any], rate: float, tmp_path: Path
) -> None:
    """Of eight and two, the latter not 99 percent better than the one before."""
    trainer = trained(tmp_path, num_epochs=2, **scheduler)
    assert trainer.engine.optimizer.param_groups[0]["lr"] == pytest.approx(rate)


def test_also_of_the_validation_that_a_run_resumes_from(tmp_path: Path) -> None:
    """Once: its checkpoint was saved before it."""
    halved: dict[str, Any] = {
        "lr_scheduler_type": ReduceLROnPlateau,
        "lr_scheduler_args": ["min", 0.5, 0, 0.99],
    }
    for epochs, rate in ((1, 0.01), (2, 0.005)):
        trainer = trained(tmp_path, num_epochs=epochs, **halved)
        assert trainer.engine.optimizer.param_groups[0]["lr"] == pytest.approx(rate)


def test_also_where_torch_sets_the_next_one_after_it(tmp_path: Path) -> None:
    halved: dict[str, Any] = {"lr_scheduler_type": ExponentialLR, "lr_scheduler_kwargs": {"gamma": 0.5}}
    trainer = trained(tmp_path, num_epochs=1, lr_scheduler_per="step", **halved)
    assert lines(trainer, "train/lr") == {1: 0.01, 2: 0.005, 3: 0.0025, 4: 0.00125}


def test_a_changed_learning_rate_counts_from_there(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trained(tmp_path, num_epochs=1)
    with caplog.at_level(logging.INFO):
        trainer = trained(tmp_path, num_epochs=2, optimizer_kwargs={"lr": 0.002})
    old, new = dict.fromkeys(range(1, 5), 0.01), dict.fromkeys(range(5, 9), 0.002)
    assert lines(trainer, "train/lr") == old | new
    assert caplog.text.count("training.optimizer_kwargs.lr: 0.002 from here on; the checkpoint has 0.01") == 1
    assert "0.002" in (trainer.folder / "config.yaml").read_text()


def test_who_gets_no_better_may_be_given_more_time(tmp_path: Path) -> None:
    """Ended by early stopping, it resumes with more patience; with as much as before nothing is left."""
    tasks = {"t": {"metric": "loss", "delta": 9e9}}
    stopping = {"early_stopping": {"kwargs": {"patience": 1, "tasks": tasks}}}
    assert trained(tmp_path, sections=stopping, num_epochs=6).epoch == 2
    assert trained(tmp_path, sections=stopping, num_epochs=6).epoch == 2
    patient = {"early_stopping": {"kwargs": {"patience": 3, "tasks": tasks}}}
    assert trained(tmp_path, sections=patient, num_epochs=6).epoch == 4


def test_averaged_weights_are_what_is_judged_and_kept(tmp_path: Path) -> None:
    trainer = trained(tmp_path, ema_decay=0.9)
    assert digest(trainer.engine.judged) != digest(trainer.model)
    newest = trainer.checkpoints.newest()
    assert newest is not None
    model = Toy().build_model()
    model.load_state_dict(load_part(newest, "ema"))
    assert digest(model) == digest(trainer.engine.judged)
    val = trainer.prepare_dataloaders()[1]
    assert evaluate(trainer.task, trainer.engine.judged, val, trainer.context) == trainer.val_data[-1]


class Clocked(Toy):
    """On a clock of its own: a training batch takes a second, one of a validation an hour."""

    now = 0.0

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        self.now += 1.0 if model.training else 3600.0
        return super().loss(model, batch)


def test_a_validation_is_not_part_of_the_steps_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = Clocked(40)
    timed = functools.partial(Throughput, clock=lambda: task.now)
    monkeypatch.setattr("castoff.trainers.reporting.reports.Throughput", timed)
    trainer = trained(tmp_path, task, {"validation": {"every_steps": 1}}, num_epochs=1, log_every=2)
    assert lines(trainer, "train/step_time") == {2: 1.0, 4: 1.0}


class Worsens(Toy):
    """The longer it is trained the worse is what validation says."""

    def evaluate(self, model: nn.Module, batch: Any) -> Any:
        return {"loss": (float(self.state.step), 1)}


def test_validation_chooses_the_best_which_is_tested(tmp_path: Path) -> None:
    trainer = trained(tmp_path, Worsens(40))
    best = trainer.checkpoints.best()
    assert best is not None
    assert best.name.endswith("4")
    trainer.run_test(trainer.prepare_dataloaders()[2])
    kept = load_part(best, "model")
    assert all(torch.equal(each, kept[name]) for name, each in trainer.model.state_dict().items())


class Scripted(Toy):
    """Validation gives losses that are set beforehand."""

    losses = (float("nan"), 3.0, 2.0, 5.0, float("nan"), 1.0)

    def evaluate(self, model: nn.Module, batch: Any) -> Any:
        return {"loss": (self.losses[self.state.epoch - 1], 1)}


@pytest.mark.parametrize("attempts", others_long([(6,), (3, 6), (1, 2, 3, 4, 5, 6)], [(3, 6)]))
def test_each_validation_is_reported_among_those_before(attempts: tuple[int, ...], tmp_path: Path) -> None:
    for epochs in attempts:
        trainer = trained(tmp_path, Scripted(40), num_epochs=epochs)
    assert list(lines(trainer, "val/best_loss").values()) == [3.0, 2.0, 2.0, 2.0, 1.0]
    assert list(lines(trainer, "val/without_improvement").values()) == [1, 0, 0, 1, 2, 0]
    assert list(lines(trainer, "checkpoint/is_best").values()) == [0, 1, 1, 0, 0, 1]
    given = lines(trainer, "checkpoint/step")
    assert list(given) == list(given.values()) == [4, 8, 12, 16, 20, 24]


class Looking(Toy):
    """Counts what is read of tensors from the second step's loss to the fourth's."""

    def __init__(self) -> None:
        super().__init__(40)
        self.read: list[str] = []
        self.stack = ExitStack()

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        if model.training and self.state.step == 1:
            self.seen = self.stack.enter_context(counted())
        if model.training and self.state.step == 3:
            self.read = list(self.seen.found)
            self.stack.close()
        return super().loss(model, batch)


def test_the_device_is_not_waited_for_between_reports(tmp_path: Path) -> None:
    """Q18. On the CPU the gradient's norm and its factor are read in each step, which costs nothing there.

    With SGD: AdamW reads its own counts, which lie on the CPU in any case.
    """
    task = Looking()
    fields = plainly(tmp_path, log_every=4, num_epochs=1, clip_grad_norm=1.0, ema_decay=0.9)
    trainer = TrainerDDP(0, fields, task)
    trainer.run_training(*trainer.prepare_dataloaders()[:2])
    of_samples = "tolist"  # their indices, on the host
    assert [each for each in task.read if each != of_samples] == ["aten._local_scalar_dense.default"] * 4


class DrawsInCollate(Toy):
    """Of a set that draws nothing itself."""

    def collate(self, samples: list[Any]) -> Any:
        numbers, wanted = super().collate(samples)
        noise = torch.rand_like(numbers) + numpy.random.rand() + random.random()
        return numbers + noise.float(), wanted


@pytest.mark.parametrize("num_workers", [0, 2])
def test_draws_of_a_collate_function_are_resumed(num_workers: int, tmp_path: Path) -> None:
    """In training and validation."""
    whole = trained(tmp_path / "whole", DrawsInCollate(40), num_epochs=2, num_workers=num_workers)
    for steps in (3, 8):
        seed_all(steps)
        options: dict[str, Any] = {"num_epochs": None, "num_steps": steps, "num_workers": num_workers}
        parts = trained(tmp_path / "parts", DrawsInCollate(40), **options)
    assert digest(parts.model) == digest(whole.model)
    assert parts.val_data[-1] == whole.val_data[-1]


class Samples(Toy):
    """Draws something for the log after each validation."""

    def after_evaluation(self, model: nn.Module) -> Mapping[str, float]:
        return {"drawn": float(torch.rand(()))}


def test_what_is_drawn_after_a_validation_is_of_that_one(tmp_path: Path) -> None:
    """And does not follow from how its batches were dealt."""
    one, other = (
        lines(trained(tmp_path / f"{size}", Samples(40), {"validation": {"batch_size": size}}), "val/drawn")
        for size in (1, 4)
    )
    assert one == other
    assert len(set(one.values())) == 3


# --- Trouble -------------------------------------------------------------------------------------


class Diverges(Toy):
    """Its loss is not a number from the sixth step on."""

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        loss = super().loss(model, batch)
        bad = model.training and self.state.step >= 5
        return Loss(loss.total * float("nan")) if bad else loss


def finite(state: Mapping[str, Tensor]) -> bool:
    return all(bool(torch.isfinite(each).all()) for each in state.values())


def test_a_loss_that_is_not_finite_ends_training(tmp_path: Path) -> None:
    """And no checkpoint of it pushes a good one out."""
    with pytest.raises(NonFiniteError, match=r"step 6: the loss of rank 0 is not finite"):
        trained(tmp_path, Diverges(40), checkpoint_every_steps=1)
    trainer = TrainerDDP(0, config(tmp_path), Toy(40))
    newest = trainer.checkpoints.newest()
    assert newest is not None
    assert newest.name.endswith("5")
    assert finite(load_part(newest, "model"))


class Masked(Toy):
    """With a mask of -inf for what comes later, as attention has it, which is kept with the weights."""

    def build_model(self) -> nn.Module:
        model = super().build_model()
        model.register_buffer("later", torch.full((3, 3), -math.inf).triu(1))
        return model


def test_what_was_never_finite_need_not_be(tmp_path: Path) -> None:
    trainer = trained(tmp_path, Masked(40), ema_decay=0.9)
    newest = trainer.checkpoints.newest()
    assert newest is not None
    assert not finite({"later": load_part(newest, "ema")["later"]})


def test_or_is_left_out(tmp_path: Path) -> None:
    trainer = trained(tmp_path, Diverges(40), non_finite="skip")
    assert trainer.step == 12
    assert trainer.engine.skipped == 7
    assert lines(trainer, "train/skipped_steps")[12] == 7
    assert finite(trainer.model.state_dict())


def test_a_damaged_best_is_not_tested(tmp_path: Path) -> None:
    trainer = trained(tmp_path)
    best = trainer.checkpoints.best()
    assert best is not None
    data = bytearray((best / "model.pt").read_bytes())
    data[len(data) // 2] ^= 1
    (best / "model.pt").write_bytes(data)
    with pytest.raises(CheckpointError, match=r"best checkpoint.*model\.pt does not match its checksum"):
        trainer.run_test(trainer.prepare_dataloaders()[2])


@pytest.mark.parametrize(
    ("method", "answer", "says"),
    [
        ("loss", None, r"Wrong\.loss returned None.*is a return missing"),
        ("build_data", [1, 2], r"Wrong\.build_data returned a list of 2.*Splits\(train, validation, test\)"),
        ("build_model", "net", r"Wrong\.build_model returned 'net'"),
        ("evaluate", 3, r"Wrong\.evaluate returned 3"),
        ("finish", [1.0], r"Wrong\.finish returned a list of 1"),
        ("after_evaluation", None, r"Wrong\.after_evaluation returned None"),
        ("state_dict", {"seen": Path()}, r"Wrong\.state_dict returned a PosixPath for \['seen'\]"),
    ],
)
def test_what_a_task_gives_is_looked_at(method: str, answer: Any, says: str, tmp_path: Path) -> None:
    wrong = type("Wrong", (Toy,), {method: lambda self, *_: answer})
    with pytest.raises(ConfigError, match=says):
        trained(tmp_path, wrong(40))


PROGRAM = """
import sys
from tests.trainers.toys import Toy, config
from castoff.trainers import train

class NoLoss(Toy):
    def loss(self, model, batch):
        return None

train(config(sys.argv[1]), NoLoss(40))
"""


@pytest.mark.usefixtures("for_real")
def test_a_program_of_ones_own_ends_in_words(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=patience.SECONDS,
        check=False,
    )
    assert done.returncode == 1
    (line,) = (line for line in unwrapped(done.stderr).splitlines() if not line.startswith("[RANK 0]"))
    assert line.startswith("castoff train: NoLoss.loss returned None; return Loss(total)")


# --- Any number of ranks -------------------------------------------------------------------------


class Plain(Toy):
    """Nothing random but the order and, in validation, noise: any number of ranks must train the same."""

    def __init__(self, counted: bool):
        super().__init__(65, dropout=0.0)
        self.counted = counted

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        numbers, wanted = batch
        errors = ((model(numbers) - wanted) ** 2).squeeze(1)
        if not self.counted:
            return Loss(errors.sum())
        weights = (numbers[:, 0].abs() * 10).ceil()  # as a sequence has tokens
        return Loss((errors * weights).sum(), weights.sum())

    def evaluate(self, model: nn.Module, batch: Any) -> Any:
        noise = torch.rand(()) + torch.rand((), generator=self.state.generator)
        return {"loss": (self.loss(model, batch).total, None), "noise": (noise, 1)}


def plainly(path: Path, **training: Any) -> dict[str, Any]:
    """With SGD, since AdamW would hide a gradient of the wrong scale."""
    sgd = {"optimizer_type": torch.optim.SGD, "optimizer_kwargs": {"lr": 0.01, "momentum": 0.9}}
    return {**config(path, **sgd, **training), "validation": {"batch_size": 4}}


def train(task: Task, fields: dict[str, Any]) -> tuple[Any, ...]:
    me = RankEnv.detect()
    if me.world_size > 1:
        initialize_ddp(me.rank, me.world_size, device="cpu")
    trainer = TrainerDDP(me.rank, fields, task)
    results = trainer.run_training(*trainer.prepare_dataloaders()[:2])
    cleanup_ddp()
    return (*results, trainer.step, [each.detach().clone() for each in trainer.model.parameters()])


def alike(mine: tuple[Any, ...], theirs: tuple[Any, ...]) -> None:
    assert mine[2] == theirs[2]
    for one, other in zip([*mine[0], *mine[1]], [*theirs[0], *theirs[1]], strict=True):
        assert one == pytest.approx(other, rel=1e-5)
        assert one.get("noise") == other.get("noise"), "noise is drawn alike on any number of ranks"
    for one, other in zip(mine[3], theirs[3], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("for_real")
@pytest.mark.parametrize("counted", [False, True])
def test_the_world_size_changes_nothing(counted: bool, tmp_path: Path) -> None:
    """With the same global batch, in micro-batches or not; of 52 samples the last two steps share sixteen."""
    (alone,) = run(
        *(train, Plain(counted), plainly(tmp_path / "one", batch_size=12, num_epochs=2)),
        folder=tmp_path / "r1",
        world_size=1,
    )
    assert alone[2] == 10
    for world_size, batch, micros in ((1, 4, 3), (2, 6, 1), (2, 3, 2), (3, 4, 1)):
        folder = tmp_path / f"{world_size}-{micros}"
        shares = {"batch_size": batch, "gradient_accumulation_steps": micros}
        answers = run(
            *(train, Plain(counted), plainly(folder / "out", num_epochs=2, **shares)),
            folder=tmp_path / f"r{world_size}-{micros}",
            world_size=world_size,
        )
        alike(answers[0], alone)


@pytest.mark.usefixtures("for_real")
def test_from_four_ranks_to_two(tmp_path: Path) -> None:
    """Stopped in the middle of an epoch, with the same global batch: to float tolerance."""
    (alone,) = run(
        *(train, Plain(True), plainly(tmp_path / "one", batch_size=12, num_epochs=4)),
        folder=tmp_path / "r1",
        world_size=1,
    )
    outcome, stop = tmp_path / "outcome", tmp_path / "stop"
    stop.touch()
    four = plainly(tmp_path / "out", batch_size=3, num_epochs=4)
    given = {"CASTOFF_STOP_FILE": str(stop), "CASTOFF_OUTCOME_FILE": str(outcome)}
    ranks = Ranks(tmp_path / "four", 4, given)
    ranks.start(train, Plain(True), four)
    assert ranks.end() == [0] * 4, ranks.log(0)
    assert outcome.read_text() == "resume\n"
    newest = Checkpoints(tmp_path / "out" / "toy" / "checkpoints").newest()
    assert newest is not None
    assert load_part(newest, "training")["state"]["consumed"] > 0
    two = plainly(tmp_path / "out", batch_size=6, num_epochs=4)
    answers = run(train, Plain(True), two, folder=tmp_path / "two", world_size=2)
    alike(answers[0], alone)
