"""Judging a model: exact means over all samples of all ranks, and when to stop for good."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from trainers.core.config import ConfigError
from trainers.core.data import Batch
from trainers.core.distributed import Place, sums_over_ranks
from trainers.core.randomness import seed_all
from trainers.task import Task, move

_SQUARES = "loss, squared means of batches"


class Measures(dict[str, float]):
    """Means by name, and how far the loss of single batches lies from its mean."""

    spread: float = 0.0
    """Standard deviation of the batches' mean losses, weighted by their counts."""


def evaluate(task: Task, model: nn.Module, loader: Iterable[Batch], place: Place) -> Measures:
    """The mean of each of the task's measures over the samples of all ranks' loaders.

    `model` is the bare module: a DistributedDataParallel around it would wait in its forward pass
    for ranks that have fewer batches. Every rank must call this; the result is the same on all.
    """
    sums: dict[str, list[float | torch.Tensor]] = {}
    was_training = model.training
    model.eval()
    _same_buffers(model, place)
    try:
        with torch.no_grad():
            for batch in loader:
                seed_all(batch.seed)
                measured = task.evaluate(model, move(batch.data, place.device))
                counts = {name: batch.samples if n is None else n for name, (_, n) in measured.items()}
                for name, (total, _) in measured.items():
                    held = sums.setdefault(name, [0.0, 0.0])
                    held[0] = held[0] + _double(total)
                    held[1] = held[1] + _double(counts[name])
                if "loss" in measured:
                    total, count = _double(measured["loss"][0]), _double(counts["loss"])
                    held = sums.setdefault(_SQUARES, [0.0, 0.0])
                    held[0] = held[0] + total * total / count
                    held[1] = held[1] + count
    finally:
        model.train(was_training)
    names = _all_names(sorted(sums), place)
    pairs = {name: (pair[0], pair[1]) for name, pair in sums.items()}
    means = sums_over_ranks(place, pairs, names)
    squares = means.pop(_SQUARES, 0.0)
    measures = Measures(means)
    if "loss" in means:
        measures.spread = math.sqrt(max(squares - means["loss"] ** 2, 0.0))
    return measures


def _double(value: torch.Tensor | float) -> torch.Tensor | float:
    if not isinstance(value, torch.Tensor):
        return float(value)
    value = value.detach()
    return value.cpu().double() if value.device.type == "mps" else value.double()


def _same_buffers(model: nn.Module, place: Place) -> None:
    """Rank 0's buffers everywhere: DistributedDataParallel copies them before a step, not after."""
    if place.distributed and place.world_size > 1:
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)


def _all_names(mine: list[str], place: Place) -> list[str]:
    """The names on any rank; one that had no batch knows none itself."""
    if not place.distributed or place.world_size == 1:
        return mine
    every: list[list[str] | None] = [None] * place.world_size
    dist.all_gather_object(every, mine)
    return sorted({name for names in every for name in names or []})


class DefaultEarlyStopping:
    """Stops when nothing has got better for `patience` evaluations, as QuantumGrav has it.

    `tasks` maps any name to {metric, delta, grace_period, init_best_score, mode: min or max};
    without it the loss is to fall. Better is less than best - delta (min), more than best + delta
    (max). With `mode` any, one task that got better is enough, with all, every one must. Getting
    better resets the patience; not getting better costs one, but only when every grace period is
    over.

    Raises:
        ValueError: patience below 1, an unknown mode, or a task without its metric.
    """

    def __init__(
        self, tasks: Mapping[Any, Mapping[str, Any]] | None = None, patience: int = 5, mode: str = "any"
    ):
        if patience < 1:
            raise ValueError(f"early_stopping: patience is {patience}, but takes at least 1")
        if mode not in ("any", "all"):
            raise ValueError(f"early_stopping: mode is {mode!r}, but takes any or all")
        self.patience = patience
        self.mode = mode
        self.left = patience
        self.found_better_model = False
        self.tasks = {str(name): dict(task) for name, task in (tasks or {"loss": {"metric": "loss"}}).items()}
        self.best: dict[str, float] = {}
        self.grace: dict[str, int] = {}
        for name, task in self.tasks.items():
            if "metric" not in task:
                raise ValueError(f"early_stopping: task {name} names no metric")
            if task.get("mode", "min") not in ("min", "max"):
                raise ValueError(
                    f"early_stopping: task {name} has mode {task['mode']!r}; it takes min or max"
                )
            worst = math.inf if task.get("mode", "min") == "min" else -math.inf
            first = task.get("init_best_score")
            self.best[name] = worst if first is None else float(first)
            self.grace[name] = int(task.get("grace_period", 0))

    def __call__(self, measures: Mapping[str, float]) -> bool:
        """Take an evaluation's measures in; whether it is time to stop.

        Raises:
            ConfigError: a task's metric is not among them.
        """
        better = {name for name, task in self.tasks.items() if self._better(name, task, measures)}
        self.found_better_model = bool(better) if self.mode == "any" else len(better) == len(self.tasks)
        if self.found_better_model:
            self.left = self.patience
            for name in better:
                self.best[name] = float(measures[self.tasks[name]["metric"]])
        elif not any(self.grace.values()):
            self.left -= 1
        self.grace = {name: max(left - 1, 0) for name, left in self.grace.items()}
        return self.left <= 0

    def _better(self, name: str, task: Mapping[str, Any], measures: Mapping[str, float]) -> bool:
        metric = task["metric"]
        if metric not in measures:
            raise ConfigError(
                [
                    f"early_stopping: task {name} watches {metric!r}, which validation does not measure; "
                    f"it measures {', '.join(measures)}"
                ]
            )
        value, delta = float(measures[metric]), float(task.get("delta", 0.0))
        if task.get("mode", "min") == "min":
            return self.best[name] - delta > value
        return self.best[name] + delta < value

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"left": self.left, "best": dict(self.best), "grace": dict(self.grace)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.left = int(state["left"])
        self.best = {str(name): float(value) for name, value in state["best"].items()}
        self.grace = {str(name): int(value) for name, value in state["grace"].items()}
