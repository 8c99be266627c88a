"""The learning rate as a function of the step alone, so that a resume needs no state."""

from __future__ import annotations

import math

from castoff.trainers.configuration.config import Schedule

_ENDLESS = ("constant", "noam")


def factor(schedule: Schedule, step: int, total: int) -> float:
    """The factor of the learning rate, 0 to 1, in the step after `step` completed ones.

    In the warmup it is (step + 1) / warmup_steps, so that the first step does not have a rate of 0. After it,
    linear and cosine fall to the floor, which they reach after `schedule.steps` steps (else `total`, the
    training's) and keep; noam falls with the inverse square root of the step (Vaswani et al. 2017, "Attention
    Is All You Need", section 5.3), relative to its peak, but not below the floor.
    """
    warmup = schedule.warmup_steps
    if step < warmup:
        return (step + 1) / warmup
    if schedule.type == "constant":
        return 1.0
    if schedule.type == "noam":
        return max(math.sqrt(warmup / (step + 1)), schedule.floor)
    end = schedule.steps or total
    if step >= end:
        return schedule.floor
    done = (step - warmup) / (end - warmup)
    left = 1.0 - done if schedule.type == "linear" else (1.0 + math.cos(math.pi * done)) / 2.0
    return schedule.floor + (1.0 - schedule.floor) * left


def problems(schedule: Schedule) -> list[str]:
    """Problems of a schedule, whatever the training's length."""
    field, warmup, messages = "training.schedule", schedule.warmup_steps, []
    endless = schedule.type in _ENDLESS
    if schedule.type == "noam" and not warmup:
        messages.append(f"{field}.warmup_steps: is 0, but noam has its peak there; write at least 1")
    if endless and schedule.steps is not None:
        messages.append(
            f"{field}.steps: is {schedule.steps}, but {schedule.type} has no end; drop it, or write "
            "type: cosine"
        )
    if schedule.type == "constant" and schedule.floor:
        messages.append(
            f"{field}.floor: is {schedule.floor}, but constant never falls; drop it, or write type: cosine"
        )
    if not endless and schedule.steps is not None and warmup >= schedule.steps:
        messages.append(
            f"{field}.steps: is {schedule.steps}, but the warmup alone takes {warmup}; write more"
        )
    return messages


def problems_of_length(schedule: Schedule, total: int | None) -> list[str]:
    """Problems of a schedule in a training of `total` steps; None: unknown."""
    field, warmup = "training.schedule", schedule.warmup_steps
    endless = schedule.type in _ENDLESS
    if not endless and schedule.steps is not None:
        return []
    if not endless and total is None:
        return [
            f"{field}.steps: is missing, and the number of steps of {schedule.type} is unknown, because "
            "the data have no length; write steps, or training.num_steps"
        ]
    if warmup and total is not None and warmup >= total:
        return [
            f"{field}.warmup_steps: is {warmup}, but the training has {total} steps; write less than that"
        ]
    return []
