"""When training that gets no better ends."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from trainers.core.config import Config, ConfigError, called


class Verdict(NamedTuple):
    """What follows from a validation."""

    better: bool
    """Whether this is the best model so far."""
    stop: bool
    """Whether it is time to stop."""


class DefaultEarlyStopping:
    """Stops when nothing has got better for `patience` evaluations, as QuantumGrav has it; None: never.

    `tasks` maps any name to {metric, delta, grace_period, init_best_score, mode: min or max};
    without it the loss is to fall. Better is less than best - delta (min), more than best + delta
    (max). With `mode` any, one task that got better is enough, with all, every one must. Getting
    better resets the patience; not getting better costs one, but only when every grace period is
    over.

    Raises:
        ValueError: patience below 1, an unknown mode, or a task without its metric.
    """

    def __init__(
        self,
        tasks: Mapping[Any, Mapping[str, Any]] | None = None,
        patience: int | None = 5,
        mode: str = "any",
    ):
        if patience is not None and patience < 1:
            raise ValueError(f"early_stopping: patience is {patience}, but takes at least 1")
        if mode not in ("any", "all"):
            raise ValueError(f"early_stopping: mode is {mode!r}, but takes any or all")
        self.patience = patience
        self.mode = mode
        self.waited = 0
        """Evaluations in a row that were no better, grace periods apart."""
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
            self.waited = 0
            for name in better:
                self.best[name] = float(measures[self.tasks[name]["metric"]])
        elif not any(self.grace.values()):
            self.waited += 1
        self.grace = {name: max(left - 1, 0) for name, left in self.grace.items()}
        return self.patience is not None and self.waited >= self.patience

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
        return {"waited": self.waited, "best": dict(self.best), "grace": dict(self.grace)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.waited = int(state["waited"])
        self.best |= {name: float(value) for name, value in state["best"].items() if name in self.best}
        self.grace |= {name: int(value) for name, value in state["grace"].items() if name in self.grace}


class Judge:
    """Says after each validation whether the model is the best so far, and whether to stop."""

    def __init__(self, config: Config):
        self._asked = _made(config)

    def __call__(self, measures: Mapping[str, float]) -> Verdict:
        """Take a validation in.

        Raises:
            ConfigError: it lacks what is watched.
        """
        stop = bool(self._asked(measures))
        return Verdict(bool(self._asked.found_better_model), stop)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        kept: dict[str, Any] = self._asked.state_dict()
        return kept

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._asked.load_state_dict(state)


def _made(config: Config) -> Any:
    """What `early_stopping` names; without it, one that never stops and watches the loss."""
    asked = config.early_stopping
    if asked is None:
        return DefaultEarlyStopping(patience=None)
    make = DefaultEarlyStopping
    if asked.type != "DefaultEarlyStopping":
        make = called(asked.type, "early_stopping.type", "DefaultEarlyStopping or !pyobject my_module.Mine")
    try:
        return make(*asked.args, **asked.kwargs)
    except (TypeError, ValueError) as error:
        raise ConfigError([f"early_stopping: {error}"]) from error
