"""The learning rate of every step: by our own schedules or one of torch's, after scaling."""

from __future__ import annotations

import math
from typing import Any

import msgspec
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CyclicLR, LRScheduler, OneCycleLR, ReduceLROnPlateau

from castoff.trainers.configuration.config import Config, Schedule
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.flattened import fields
from castoff.trainers.distributed.private_torch import mark_as_stepped
from castoff.trainers.optimization import scaling, schedule
from castoff.trainers.optimization.optimizer import CONFIGURED, make_scheduler

_BESIDE_A_TYPE = ("lr_scheduler_args", "lr_scheduler_kwargs", "lr_scheduler_per")


class LearningRate:
    """Sets the optimizer's learning rates: one for all kinds of schedules.

    Our own are functions of the step: `before_step` sets the rate, and a checkpoint need not know it.
    One of torch's is stepped when a step, an epoch or a validation is done. Make this once, for an
    optimizer of `make_optimizer`, before a checkpoint is loaded into that; then say how long it is.
    Scaling rules act on the configured rate of every group, never on a checkpoint's.

    Raises:
        ConfigError: the schedule, scheduler or scaling cannot be followed, as far as is known before the
            data are there.
    """

    def __init__(self, config: Config, optimizer: Optimizer, *, world_size: int):
        scaled = scaling.resolved(config, world_size)
        self._config = config
        self._optimizer = optimizer
        self._schedule = _schedule(config, scaled)
        self._total = 0
        self._rates = [
            float(group[CONFIGURED]["lr"]) * scaled.learning_rate for group in optimizer.param_groups
        ]
        self.resolved: dict[str, float] = scaled.logged() | _named(self._rates)
        """The values that follow from the configuration and the number of ranks, for the log."""
        for group, rate in zip(optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate
        self.used = self._rates[0]
        """The first group's rate in the last step."""
        self._scheduler = make_scheduler(config, optimizer)
        self._after: str | None = None
        """What torch's scheduler is stepped after."""
        self._made_from: dict[str, Any] | None = None
        if self._scheduler is not None:
            self._after = _stepped_after(config, self._scheduler)
            _check_rates(config, self._scheduler)
            self._made_from = _described(config) | self._leave_to(self._scheduler)
            # A step that left the weights alone counts, too; torch would warn that its scheduler came first.
            mark_as_stepped(optimizer)
        if config.training.num_steps is not None:
            self.lasts(config.training.num_steps, None)

    def lasts(self, total_steps: int | None, steps_per_epoch: int | None) -> None:
        """Say how long the training is, before its first step; None: nobody knows.

        Raises:
            ConfigError: the schedule or scheduler cannot be followed for so long.
        """
        problems = schedule.problems_of_length(self._schedule, total_steps)
        if problems:
            raise ConfigError(_explained(problems, self._config, self._schedule))
        self._total = total_steps or 0
        if self._scheduler is None or self._after is None:
            self.before_step(0)
            return
        epochs = math.ceil(total_steps / steps_per_epoch) if total_steps and steps_per_epoch else None
        _check_length(self._scheduler, total_steps if self._after == "step" else epochs, self._after)

    def before_step(self, step: int) -> None:
        """Set the rates of the step that follows `step` done ones."""
        if self._scheduler is None:
            part = schedule.factor(self._schedule, step, self._total)
            for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
                group["lr"] = rate * part
        self.used = float(self._optimizer.param_groups[0]["lr"])

    def after_step(self) -> None:
        """Advance the schedule after an optimizer step, even one that left the weights unchanged."""
        if self._scheduler is not None and self._after == "step":
            self._scheduler.step()

    def after_epoch(self) -> None:
        """An epoch is done."""
        if self._scheduler is not None and self._after == "epoch":
            self._scheduler.step()

    def after_evaluation(self, loss: float) -> None:
        """A validation is done, with this loss."""
        if isinstance(self._scheduler, ReduceLROnPlateau):
            self._scheduler.step(loss)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps: nothing of our own schedules; torch's state, and what it was made from."""
        if self._scheduler is None:
            return {}
        return {"made_from": self._made_from, "scheduler": self._scheduler.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a checkpoint.

        Raises:
            ConfigError: one of torch's schedulers would have to resume from another one's rates.
        """
        if self._scheduler is None or self._made_from is None:
            return
        before, now = state.get("made_from") or {}, self._made_from
        changed = [
            f"{field}: is {now.get(field, 'not given')}, but the checkpoint was made with "
            f"{before.get(field, 'none')}"
            for field in dict.fromkeys([*now, *before])
            if before.get(field) != now.get(field)
        ]
        if changed:
            raise ConfigError(
                [
                    *changed,
                    "one of torch's schedulers computes each rate from the one before, and cannot take up "
                    "another; keep what the checkpoint was made with, write training.schedule in its place, "
                    "which is a function of the step alone, or start over with training.fresh: true",
                ]
            )
        self._scheduler.load_state_dict(state["scheduler"])

    def _leave_to(self, scheduler: LRScheduler) -> dict[str, str]:
        """Take from the groups' `CONFIGURED` what a scheduler rules from now on; the values it began with."""
        inner = [scheduler, *getattr(scheduler, "_schedulers", ())]
        cycles = any(getattr(each, "cycle_momentum", False) for each in inner)
        ruled = ("lr", "momentum", "betas") if cycles else ("lr",)
        begun_with: dict[str, list[Any]] = {}
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            configured = {**group[CONFIGURED], "lr": rate}
            for name in ruled:
                if name in configured:
                    begun_with.setdefault(name, []).append(configured.pop(name))
            group[CONFIGURED] = configured
        return {
            f"training.optimizer_kwargs.{name} (after scaling)"
            if name == "lr"
            else f"training.optimizer_kwargs.{name}": ", ".join(map(str, values))
            for name, values in begun_with.items()
        }


def _schedule(config: Config, scaled: scaling.Resolved) -> Schedule:
    """The schedule with its scaled warmup."""
    training = config.training
    if training.lr_scheduler_type is None:
        found = [
            f"training.{name}: has no effect without training.lr_scheduler_type; name one, or drop it"
            for name in _BESIDE_A_TYPE
            if getattr(training, name)
        ]
    elif training.schedule is not None:
        found = ["training.lr_scheduler_type: stands beside training.schedule; drop one of the two"]
    else:
        found = []
    if training.schedule is None:
        made = Schedule()
    else:
        made = msgspec.structs.replace(training.schedule, warmup_steps=scaled.warmup_steps)
        found += _explained(schedule.problems(made), config, made)
    if found:
        raise ConfigError(found)
    return made


def _explained(problems: list[str], config: Config, made: Schedule) -> list[str]:
    """What is wrong with a schedule, and where its warmup is from."""
    training = config.training
    if not problems or training.schedule is None or made == training.schedule:
        return problems
    return [
        *problems,
        f"training.scaling.warmup: {training.scaling.warmup} has made these {made.warmup_steps} "
        f"warmup steps of {training.schedule.warmup_steps}",
    ]


def _stepped_after(config: Config, scheduler: LRScheduler) -> str:
    """step, epoch or evaluation."""
    per, kind = config.training.lr_scheduler_per, type(scheduler).__name__
    field = "training.lr_scheduler_per"
    if isinstance(scheduler, ReduceLROnPlateau):
        if per is not None:
            raise ConfigError([f"{field}: is {per}, but {kind} is stepped after each validation; drop it"])
        return "evaluation"
    if per is None:
        raise ConfigError(
            [
                f"{field}: is missing; write step if {kind} counts optimizer steps, as OneCycleLR does "
                "with its total_steps, or epoch if it counts epochs"
            ]
        )
    return per


def _check_rates(config: Config, scheduler: LRScheduler) -> None:
    """A scheduler with rates of its own would undo the scaling."""
    rule = config.training.scaling.learning_rate
    for each in (scheduler, *getattr(scheduler, "_schedulers", ())):
        if rule != "none" and isinstance(each, (OneCycleLR, CyclicLR)):
            raise ConfigError(
                [
                    f"training.scaling.learning_rate: is {rule}, but {type(each).__name__} takes its "
                    "rates from training.lr_scheduler_kwargs, where they are literal; write them as "
                    "they shall be and drop the rule, or use training.schedule"
                ]
            )


def _check_length(scheduler: LRScheduler, asked: int | None, unit: str) -> None:
    """OneCycleLR refuses to continue after its end."""
    if isinstance(scheduler, OneCycleLR) and asked is not None and scheduler.total_steps < asked:
        raise ConfigError(
            [
                f"training.lr_scheduler_kwargs: OneCycleLR ends after {scheduler.total_steps}, but the "
                f"training has {asked} {unit}s; write total_steps: {asked}, or set training.lr_scheduler_per"
            ]
        )


def _described(config: Config) -> dict[str, Any]:
    """What torch's scheduler is made from, in words that are the same in every process."""
    given = fields(config, 1).items()
    return {path: value for path, value in given if path.startswith("training.lr_scheduler_")}


def _named(rates: list[float]) -> dict[str, float]:
    """Rates by the names under which a log has them; groups of their own beside the first."""
    others = {f"ddp/scaled_lr_{number}": rate for number, rate in enumerate(rates) if rate != rates[0]}
    return {"ddp/scaled_lr": rates[0], **others}
