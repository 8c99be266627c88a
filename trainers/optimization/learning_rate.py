"""The learning rate of every step, by castoff's schedules or torch's schedulers, after scaling."""

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
    """Sets the optimizer's learning rates, with a castoff schedule or a torch scheduler.

    A castoff schedule is a function of the step: `before_step` sets the rate, and a checkpoint keeps nothing.
    A torch scheduler is stepped after each step, epoch or validation. Make this object for an optimizer of
    `make_optimizer`, before a checkpoint is loaded into that; then call `lasts`. Scaling rules apply to the
    configured rate of every group, never to a checkpoint's.

    Raises:
        ConfigError: the schedule, scheduler or scaling is wrong; problems of length are found by `lasts`.
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
        """What torch's scheduler is stepped after: `step`, `epoch` or `evaluation`."""
        self._made_from: dict[str, Any] | None = None
        if self._scheduler is not None:
            self._after = _stepped_after(config, self._scheduler)
            _check_rates(config, self._scheduler)
            self._made_from = _described(config) | self._leave_to(self._scheduler)
            # Skipped steps count, too; without this torch would warn that the scheduler was stepped first.
            mark_as_stepped(optimizer)
        if config.training.num_steps is not None:
            self.lasts(config.training.num_steps, None)

    def lasts(self, total_steps: int | None, steps_per_epoch: int | None) -> None:
        """Set the length of the training, before its first step; None: unknown.

        Raises:
            ConfigError: the schedule or scheduler does not fit this length.
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
        """Set the rates of the next step; `step`: number of completed steps."""
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
        """Advance the schedule after an epoch."""
        if self._scheduler is not None and self._after == "epoch":
            self._scheduler.step()

    def after_evaluation(self, loss: float) -> None:
        """Advance ReduceLROnPlateau after a validation with this loss."""
        if isinstance(self._scheduler, ReduceLROnPlateau):
            self._scheduler.step(loss)

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint: a torch scheduler's state and settings; empty with castoff's."""
        if self._scheduler is None:
            return {}
        return {"made_from": self._made_from, "scheduler": self._scheduler.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a checkpoint.

        Raises:
            ConfigError: the torch scheduler's settings have changed, so it cannot resume.
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
                    "torch's schedulers compute each rate from the previous one, and cannot continue "
                    "with other settings; keep those of the checkpoint, use training.schedule instead, "
                    "which depends only on the step, or start over with training.fresh: true",
                ]
            )
        self._scheduler.load_state_dict(state["scheduler"])

    def _leave_to(self, scheduler: LRScheduler) -> dict[str, str]:
        """Remove the values that a scheduler controls from the configured hyperparameters of each
        parameter group; return their initial values, as texts by field.
        """
        inner = [scheduler, *getattr(scheduler, "_schedulers", ())]
        cycles = any(getattr(each, "cycle_momentum", False) for each in inner)
        controlled = ("lr", "momentum", "betas") if cycles else ("lr",)
        initial: dict[str, list[Any]] = {}
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            configured = {**group[CONFIGURED], "lr": rate}
            for name in controlled:
                if name in configured:
                    initial.setdefault(name, []).append(configured.pop(name))
            group[CONFIGURED] = configured
        return {
            f"training.optimizer_kwargs.{name} (after scaling)"
            if name == "lr"
            else f"training.optimizer_kwargs.{name}": ", ".join(map(str, values))
            for name, values in initial.items()
        }


def _schedule(config: Config, scaled: scaling.Resolved) -> Schedule:
    """The schedule with its scaled warmup."""
    training = config.training
    if training.lr_scheduler_type is None:
        problems = [
            f"training.{name}: has no effect without training.lr_scheduler_type; name one, or drop it"
            for name in _BESIDE_A_TYPE
            if getattr(training, name)
        ]
    elif training.schedule is not None:
        problems = ["training.lr_scheduler_type: is set, and training.schedule, too; drop one of the two"]
    else:
        problems = []
    if training.schedule is None:
        made = Schedule()
    else:
        made = msgspec.structs.replace(training.schedule, warmup_steps=scaled.warmup_steps)
        problems += _explained(schedule.problems(made), config, made)
    if problems:
        raise ConfigError(problems)
    return made


def _explained(problems: list[str], config: Config, made: Schedule) -> list[str]:
    """The problems of a schedule, with a note if its warmup was scaled."""
    training = config.training
    if not problems or training.schedule is None or made == training.schedule:
        return problems
    return [
        *problems,
        f"training.scaling.warmup: {training.scaling.warmup} turned {training.schedule.warmup_steps} "
        f"warmup steps into {made.warmup_steps}",
    ]


def _stepped_after(config: Config, scheduler: LRScheduler) -> str:
    """What the scheduler is stepped after: `step`, `epoch` or `evaluation`."""
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
    """Check that the scheduler has no literal rates, which would undo the scaling."""
    rule = config.training.scaling.learning_rate
    for each in (scheduler, *getattr(scheduler, "_schedulers", ())):
        if rule != "none" and isinstance(each, (OneCycleLR, CyclicLR)):
            raise ConfigError(
                [
                    f"training.scaling.learning_rate: is {rule}, but {type(each).__name__} takes its "
                    "rates from training.lr_scheduler_kwargs, where they are not scaled; write the "
                    "scaled rates there and drop the rule, or use training.schedule"
                ]
            )


def _check_length(scheduler: LRScheduler, asked: int | None, unit: str) -> None:
    """Check that OneCycleLR is long enough, since it refuses to continue after its end."""
    if isinstance(scheduler, OneCycleLR) and asked is not None and scheduler.total_steps < asked:
        raise ConfigError(
            [
                f"training.lr_scheduler_kwargs: OneCycleLR ends after {scheduler.total_steps}, but the "
                f"training has {asked} {unit}s; write total_steps: {asked}, or set training.lr_scheduler_per"
            ]
        )


def _described(config: Config) -> dict[str, Any]:
    """The settings of torch's scheduler, the same in every process."""
    settings = fields(config, 1).items()
    return {path: value for path, value in settings if path.startswith("training.lr_scheduler_")}


def _named(rates: list[float]) -> dict[str, float]:
    """The groups' rates by name, for the log; groups with the first group's rate are left out."""
    others = {f"ddp/scaled_lr_{number}": rate for number, rate in enumerate(rates) if rate != rates[0]}
    return {"ddp/scaled_lr": rates[0], **others}
