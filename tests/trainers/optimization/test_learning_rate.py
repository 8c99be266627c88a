"""The rates that the optimizer has in each step: schedules, scaling, and resuming."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    CosineAnnealingLR,
    CyclicLR,
    ExponentialLR,
    MultiStepLR,
    OneCycleLR,
    ReduceLROnPlateau,
)

from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.optimization.learning_rate import LearningRate
from castoff.trainers.optimization.optimizer import load_optimizer, make_optimizer
from tests.trainers.toys import Toy, config

SGD = {"optimizer_type": torch.optim.SGD, "optimizer_kwargs": {"lr": 0.1, "momentum": 0.9}}


class Trained:
    """The smallest training that sets its rates as TrainerDDP does."""

    def __init__(
        self,
        *,
        world_size: int = 1,
        total: int | None = 20,
        epoch: int = 5,
        task: Toy | None = None,
        **training: Any,
    ):
        given = Config.of(config("x", **{**SGD, **training}))
        task = task or Toy()
        torch.manual_seed(0)
        self.model = task.build_model()
        self.optimizer = make_optimizer(given, task, self.model)
        self.rates = LearningRate(given, self.optimizer, world_size=world_size)
        self.rates.lasts(total, epoch)
        self.epoch = epoch
        self.step = 0
        self.seen: list[list[float]] = []
        self.others: list[Any] = []

    def run(self, steps: int, *, skip: bool = False) -> Trained:
        for _ in range(steps):
            self.rates.before_step(self.step)
            self.seen.append([group["lr"] for group in self.optimizer.param_groups])
            group = self.optimizer.param_groups[0]
            self.others.append(group.get("momentum", group.get("betas")))
            self.model(torch.ones(2, 8)).sum().backward()
            if not skip:
                self.optimizer.step()
            self.optimizer.zero_grad()
            self.step += 1
            self.rates.after_step()
            if self.step % self.epoch == 0:
                self.rates.after_evaluation(1.0)
                self.rates.after_epoch()
        return self

    def save(self) -> bytes:
        file = io.BytesIO()
        torch.save((self.step, self.optimizer.state_dict(), self.rates.state_dict()), file)
        return file.getvalue()

    def load(self, saved: bytes) -> list[str]:
        self.step, optimizer, rates = torch.load(io.BytesIO(saved), weights_only=True)
        lines = load_optimizer(self.optimizer, optimizer)
        self.rates.load_state_dict(rates)
        return lines


def first(trained: Trained) -> list[float]:
    return [rates[0] for rates in trained.seen]


# Our own schedules


def test_without_a_schedule_the_rate_is_the_configured_one() -> None:
    assert first(Trained().run(3)) == [0.1] * 3


def test_a_schedule_is_followed_step_by_step() -> None:
    seen = first(Trained(schedule={"type": "linear", "warmup_steps": 2}, total=6).run(7))
    assert seen == pytest.approx([0.05, 0.1, 0.1, 0.075, 0.05, 0.025, 0.0])


def test_the_rate_is_set_before_the_first_step() -> None:
    made = Trained(schedule={"warmup_steps": 4})
    assert made.optimizer.param_groups[0]["lr"] == pytest.approx(0.025)


class TwoGroups(Toy):
    def parameters(self, model: nn.Module) -> list[dict[str, Any]]:
        assert isinstance(model, nn.Sequential)
        return [
            {"params": model[0].parameters()},
            {"params": model[3].parameters(), "lr": 1.0, "weight_decay": 0.5},
        ]


LINEAR = {"learning_rate": "linear", "warmup": "linear", "base_world_size": 1}


def test_scaling_reaches_every_group_and_the_warmup_and_the_log() -> None:
    made = Trained(task=TwoGroups(), world_size=2, scaling=LINEAR, schedule={"warmup_steps": 2})
    made.run(5)
    assert made.seen == [[0.05, 0.5], [0.1, 1.0], [0.15000000000000002, 1.5], [0.2, 2.0], [0.2, 2.0]]
    assert made.rates.resolved == {
        "ddp/world_size": 2,
        "ddp/effective_batch_size": 16,
        "ddp/lr_factor": 2.0,
        "ddp/scaled_warmup_steps": 4,
        "ddp/scaled_lr": 0.2,
        "ddp/scaled_lr_1": 2.0,
    }


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"schedule": {"type": "cosine", "warmup_steps": 2}},
        {
            "lr_scheduler_type": ExponentialLR,
            "lr_scheduler_kwargs": {"gamma": 0.9},
            "lr_scheduler_per": "step",
        },
        {
            "lr_scheduler_type": MultiStepLR,
            "lr_scheduler_kwargs": {"milestones": [1, 3]},
            "lr_scheduler_per": "epoch",
        },
        {"lr_scheduler_type": ReduceLROnPlateau, "lr_scheduler_kwargs": {"patience": 0}},
    ],
    ids=lambda fields: str(*list(fields.values())[:1]),
)
def test_s1_scaling_is_applied_once_however_often_it_resumes(fields: dict[str, Any]) -> None:
    given = {"scaling": {**LINEAR, "warmup": "none"}, "world_size": 4, **fields}
    whole = Trained(**given).run(20)
    seen, saved = [], Trained(**given).save()
    for steps in (3, 2, 8, 7):  # three resumes after the first
        part = Trained(**given)
        assert part.load(saved) == []
        seen += part.run(steps).seen
        saved = part.save()
    assert seen == whole.seen
    assert whole.seen[0] == [pytest.approx(0.4 if "schedule" not in fields else 0.2)]


def test_another_world_size_gives_another_rate_on_resume() -> None:
    saved = Trained(scaling={**LINEAR, "warmup": "none"}, world_size=4).run(3).save()
    after = Trained(scaling={**LINEAR, "warmup": "none"}, world_size=2)
    after.load(saved)
    assert first(after.run(1)) == [0.2]


# Torch's own


def one_cycle(**more: Any) -> dict[str, Any]:
    return {
        "lr_scheduler_type": OneCycleLR,
        "lr_scheduler_kwargs": {"max_lr": 0.5, "total_steps": 20},
        "lr_scheduler_per": "step",
        **more,
    }


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_one_cycle_moves_in_every_step_as_in_a_plain_loop(kind: type[torch.optim.Optimizer]) -> None:
    """Its momentum, too; and so it does when it resumes."""
    keywords: dict[str, Any] = {"lr": 0.1, **({"momentum": 0.9} if kind is torch.optim.SGD else {})}
    fields: dict[str, Any] = one_cycle(optimizer_type=kind, optimizer_kwargs=keywords)
    plain = kind(Toy().build_model().parameters(), **keywords)
    scheduler = OneCycleLR(plain, max_lr=0.5, total_steps=20)
    rates, others = [], []
    for _ in range(20):
        group = plain.param_groups[0]
        rates.append(group["lr"])
        others.append(group.get("momentum", group.get("betas")))
        plain.step()
        scheduler.step()
    assert len(set(rates)) == 20
    made = Trained(**fields).run(20)
    assert (first(made), made.others) == (rates, others)
    for cut in (1, 7, 19):
        before, after = Trained(**fields).run(cut), Trained(**fields)
        assert after.load(before.save()) == []
        after.run(20 - cut)
        assert first(before) + first(after) == rates
        assert before.others + after.others == others


def test_q9_per_epoch_it_moves_at_each_epochs_end() -> None:
    fields: dict[str, Any] = {"lr_scheduler_type": ExponentialLR, "lr_scheduler_kwargs": {"gamma": 0.5}}
    made = Trained(lr_scheduler_per="epoch", epoch=2, **fields).run(5)
    assert first(made) == [0.1, 0.1, 0.05, 0.05, 0.025]


def test_a_plateau_is_judged_after_each_validation() -> None:
    fields: dict[str, Any] = {
        "lr_scheduler_type": ReduceLROnPlateau,
        "lr_scheduler_kwargs": {"patience": 0, "factor": 0.5},
    }
    made = Trained(epoch=2, **fields).run(5)  # each validation has the same loss
    assert first(made) == [0.1, 0.1, 0.1, 0.1, 0.05]


def chained(optimizer: torch.optim.Optimizer) -> ChainedScheduler:
    return ChainedScheduler([ExponentialLR(optimizer, 0.5), CosineAnnealingLR(optimizer, 20)])


@pytest.mark.parametrize(
    "fields", [one_cycle(), {"lr_scheduler_type": chained, "lr_scheduler_per": "step"}], ids=["one", "chain"]
)
def test_steps_that_leave_the_weights_alone_count_without_a_warning(fields: dict[str, Any]) -> None:
    """As fp16 skips them: the tests make a warning an error."""
    made = Trained(**fields).run(2, skip=True).run(2)
    assert first(made) == first(Trained(**fields).run(4))
    assert len(set(first(made))) == 4


# Resuming with another configuration


def test_a_new_rate_is_used_from_then_on() -> None:
    """And other hyperparameters, in all groups or in one; each change is said."""
    saved = Trained(task=TwoGroups(), schedule={"type": "cosine"}).run(5).save()
    after = Trained(
        task=TwoGroups(),
        schedule={"type": "cosine"},
        optimizer_kwargs={"lr": 0.2, "momentum": 0.8, "nesterov": True},
    )
    lines = after.load(saved)
    assert lines == [
        "training.optimizer_kwargs.lr: 0.2 from here on; the checkpoint has 0.1 (parameter groups 0)",
        "training.optimizer_kwargs.momentum: 0.8 from here on; the checkpoint has 0.9",
        "training.optimizer_kwargs.nesterov: True from here on; the checkpoint has False",
    ]
    wanted = Trained(
        task=TwoGroups(), schedule={"type": "cosine"}, optimizer_kwargs={"lr": 0.2, "momentum": 0.8}
    )
    wanted.run(6)
    after.run(1)
    assert after.seen == wanted.seen[5:]
    assert [group["momentum"] for group in after.optimizer.param_groups] == [0.8, 0.8]
    again = Trained(
        task=TwoGroups(),
        schedule={"type": "cosine"},
        optimizer_kwargs={"lr": 0.2, "momentum": 0.8, "nesterov": True},
    )
    assert again.load(after.save()) == []


def test_changes_of_the_optimizer_itself_are_resumed() -> None:
    """Optimizers that keep counts in their groups, and tasks that change a weight decay by hand."""
    before = Trained().run(1)
    before.optimizer.param_groups[0].update(weight_decay=0.25, count=7)
    after = Trained()
    assert after.load(before.save()) == []
    assert {name: after.optimizer.param_groups[0][name] for name in ("weight_decay", "count")} == {
        "weight_decay": 0.25,
        "count": 7,
    }


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (one_cycle(optimizer_kwargs={"lr": 0.2, "momentum": 0.9}), r"\.lr.*: is 0\.2, but .* made with 0\.1"),
        (one_cycle(optimizer_kwargs={"lr": 0.1, "momentum": 0.8}), r"momentum: is 0\.8, but .* with 0\.9"),
        (
            one_cycle(lr_scheduler_kwargs={"max_lr": 0.6, "total_steps": 20}),
            r"lr_scheduler_kwargs\.max_lr: is 0\.6",
        ),
        (
            {"lr_scheduler_type": chained, "lr_scheduler_per": "step"},
            r"_type: is .*chained, but .*OneCycleLR",
        ),
    ],
)
def test_what_torchs_schedulers_cannot_take_up_is_refused(now: dict[str, Any], says: str) -> None:
    saved = Trained(**one_cycle()).run(5).save()
    with pytest.raises(ConfigError, match=says) as error:
        Trained(**now).load(saved)
    assert "training.fresh: true" in str(error.value)


def test_torchs_scheduler_cannot_begin_in_the_middle_but_a_schedule_can() -> None:
    ours, theirs = Trained().run(5).save(), Trained(**one_cycle()).run(5).save()
    with pytest.raises(ConfigError, match=r"lr_scheduler_type: is .*, but the checkpoint was made with none"):
        Trained(**one_cycle()).load(ours)
    after = Trained(schedule={"type": "linear"})
    after.load(theirs)
    after.run(1)
    assert first(after) == [pytest.approx(0.075)]
    assert after.others == [0.9]


def test_another_world_size_is_refused_where_a_scheduler_of_torchs_has_scaled_rates() -> None:
    fields: dict[str, Any] = {
        "lr_scheduler_type": ExponentialLR,
        "lr_scheduler_kwargs": {"gamma": 0.5},
        "lr_scheduler_per": "step",
        "scaling": {"learning_rate": "linear", "base_world_size": 1},
    }
    saved = Trained(world_size=2, **fields).run(1).save()
    with pytest.raises(ConfigError, match=r"lr \(after scaling\): is 0\.1, but .* 0\.2"):
        Trained(world_size=1, **fields).load(saved)


def test_an_optimizer_with_other_groups_is_refused() -> None:
    saved = Trained(task=TwoGroups()).run(1).save()
    with pytest.raises(ConfigError, match=r"does not fit .*different number of parameter groups"):
        Trained().load(saved)


# What cannot be made


def giving(give: Callable[[Any], Any]) -> Toy:
    class Giving(Toy):
        def parameters(self, model: nn.Module) -> Any:
            return give(model)

    return Giving()


def frozen() -> Toy:
    class Frozen(Toy):
        def build_model(self) -> nn.Module:
            return super().build_model().requires_grad_(False)

    return Frozen()


@pytest.mark.parametrize(
    ("task", "says"),
    [
        (frozen(), r"model: has no parameter that could be trained"),
        (giving(lambda model: None), r"task\.parameters: returns None"),
        (giving(lambda model: model[0].weight), r"returns a Parameter, but must return a list"),
        (giving(lambda model: model.state_dict()), r"returns a OrderedDict, but must return a list"),
        (giving(lambda model: model.named_parameters()), r"returns a tuple in place of a parameter"),
        (giving(lambda model: [{"params": model[0].parameters()}, model[3]]), r"group 1 is a Linear, but"),
        (giving(lambda model: [{"lr": 1.0}]), r"group 0: params is None"),
        (giving(lambda model: [{"params": set(model.parameters())}]), r"group 0: params is a set"),
        (giving(lambda model: [*model.parameters(), model[0].bias]), r"returns 0\.bias twice"),
        (
            giving(lambda model: [{"params": model.parameters()}, {"params": model[3].weight}]),
            r"returns 3\.weight twice",
        ),
        (giving(lambda model: model[0].parameters()), r"leaves out 3\.weight, 3\.bias, for which"),
        (giving(lambda model: [*model.parameters(), torch.ones(3)]), r"shape \(3,\) that is not a parameter"),
        (giving(lambda model: [{"params": model.parameters(), "lr": "abc"}]), r"lr of group 0: is 'abc'"),
    ],
)
def test_parameters_that_cannot_be_trained(task: Toy, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Trained(task=task)


class Wrong:
    def __init__(self, *_: Any, **__: Any):
        pass


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"optimizer_kwargs": {"lr": "abc"}}, r"optimizer_kwargs\.lr: is 'abc', but takes a number"),
        ({"optimizer_kwargs": {"lr": True}}, r"optimizer_kwargs\.lr: is True, but takes a number"),
        ({"optimizer_kwargs": {"lr": float("inf")}}, r"optimizer_kwargs\.lr: is inf"),
        ({"optimizer_kwargs": {"lr": -1.0}}, r"optimizer_type: Invalid learning rate"),
        ({"optimizer_type": "adamw"}, r"optimizer_type: is 'adamw'; write !pyobject torch\.optim\.AdamW, or"),
        (
            {"optimizer_type": "torch.optim.SGD"},
            r"'torch\.optim\.SGD'; write !pyobject torch\.optim\.SGD",
        ),
        ({"optimizer_type": "Lion"}, r"optimizer_type: is 'Lion'; write !pyobject torch\.optim\.AdamW, or"),
        ({"optimizer_type": "my.own.Lion"}, r"is 'my\.own\.Lion'; write !pyobject my\.own\.Lion, or"),
        ({"optimizer_type": Wrong}, r"optimizer_type: makes a Wrong, which is not a torch"),
        ({"optimizer_type": torch.optim.LBFGS, "optimizer_kwargs": {}}, r"LBFGS computes the loss several"),
        ({"lr_scheduler_type": Wrong, "lr_scheduler_per": "step"}, r"makes a Wrong, which is no"),
        ({"lr_scheduler_type": CosineAnnealingLR}, r"lr_scheduler_kwargs.T_max: is missing; Cosine"),
        (
            {"lr_scheduler_type": CosineAnnealingLR, "lr_scheduler_kwargs": {"T_max": 3}},
            r"lr_scheduler_per: is missing; write step if CosineAnnealingLR counts",
        ),
        ({"lr_scheduler_type": ReduceLROnPlateau, "lr_scheduler_per": "step"}, r"per: is step, but Reduce"),
        ({"lr_scheduler_per": "step"}, r"lr_scheduler_per: has no effect without"),
        (one_cycle(schedule={}), r"lr_scheduler_type: is set, and training\.schedule, too"),
        (one_cycle(total=40), r"OneCycleLR ends after 20, but the training has 40 steps; write .*40"),
        (one_cycle(scaling={"learning_rate": "sqrt", "base_world_size": 1}), r"OneCycleLR takes its rates"),
        ({"schedule": {"warmup_steps": 20}}, r"warmup_steps: is 20, but the training has 20"),
        (
            {"schedule": {"warmup_steps": 10}, "scaling": LINEAR, "world_size": 3},
            r"is 30, but the training has 20 steps[^$]*linear turned 10 warmup steps into 30",
        ),
    ],
)
def test_a_schedule_that_cannot_be_constructed_is_reported(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Trained(**fields)


def test_cyclic_rates_are_those_of_a_plain_loop() -> None:
    keywords: dict[str, Any] = {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3}
    plain = torch.optim.SGD(Toy().build_model().parameters(), lr=0.1, momentum=0.9)
    scheduler = CyclicLR(plain, **keywords)
    rates = []
    for _ in range(10):
        rates.append(plain.param_groups[0]["lr"])
        plain.step()
        scheduler.step()
    fields: dict[str, Any] = {
        "lr_scheduler_type": CyclicLR,
        "lr_scheduler_kwargs": keywords,
        "lr_scheduler_per": "step",
    }
    before, after = Trained(**fields).run(4), Trained(**fields)
    after.load(before.save())
    assert first(before) + first(after.run(6)) == rates
