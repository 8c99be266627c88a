"""Scales learning rate and warmup with the number of ranks."""

from __future__ import annotations

import math
from typing import NamedTuple

from castoff.trainers.configuration.config import Config, Scaling
from castoff.trainers.configuration.fields import ConfigError


class Resolved(NamedTuple):
    """The scaled values for a number of ranks."""

    world_size: int
    effective_batch_size: int
    """Samples of one optimizer step, over all ranks."""
    learning_rate: float
    """Factor of every parameter group's learning rate."""
    warmup_steps: int
    """Warmup steps of the schedule, after scaling."""

    def logged(self) -> dict[str, float]:
        """The values by their names in the log."""
        return {
            "ddp/world_size": self.world_size,
            "ddp/effective_batch_size": self.effective_batch_size,
            "ddp/lr_factor": self.learning_rate,
            "ddp/scaled_warmup_steps": self.warmup_steps,
        }


def resolved(config: Config, world_size: int) -> Resolved:
    """Apply the rules of `training.scaling`, with n = world_size / base_world_size.

    They always apply to the configuration's values, never to a checkpoint's, so a resumed training does not
    scale twice.

    Raises:
        ConfigError: `base_world_size` is missing, or there is no warmup to scale.
    """
    training, rules = config.training, config.training.scaling
    asked = [name for name in ("learning_rate", "warmup") if getattr(rules, name) != "none"]
    problems = []
    if asked and rules.base_world_size is None:
        problems.append(
            f"training.scaling.base_world_size: is missing, but {asked[0]}: {getattr(rules, asked[0])} "
            "is relative to it; write for how many ranks the configuration's values are meant, such as "
            "base_world_size: 1"
        )
    if "warmup" in asked and training.schedule is None:
        problems.append(
            f"training.scaling.warmup: is {rules.warmup}, but there is no training.schedule with "
            "warmup_steps; write one, or drop it"
        )
    if problems:
        raise ConfigError(problems)
    times = world_size / (rules.base_world_size or world_size)
    warmup = training.schedule.warmup_steps if training.schedule else 0
    return Resolved(
        world_size,
        training.batch_size * training.gradient_accumulation_steps * world_size,
        _factor(rules, rules.learning_rate, times),
        max(round(warmup * _factor(rules, rules.warmup, times)), min(warmup, 1)),
    )


def _factor(rules: Scaling, rule: str, times: float) -> float:
    if rule == "linear":
        return times
    if rule == "sqrt":
        return math.sqrt(times)
    return min(times, rules.cap) if rule == "capped" else 1.0
