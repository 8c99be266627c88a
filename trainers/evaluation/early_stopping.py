"""Ends a training that no longer improves."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from castoff.launcher.typed.suggestion import did_you_mean
from castoff.trainers.configuration.config import Config
from castoff.trainers.configuration.fields import ConfigError, convert
from castoff.trainers.configuration.pyobject import called, resolved
from castoff.trainers.configuration.section import NotNegative, Positive, Section
from castoff.trainers.task.contract import wrong_arguments

logger = logging.getLogger(__name__)

WHERE = "early_stopping.kwargs"

_ALSO = {"loss_avg": "loss"}
"""QuantumGrav's name of a metric, and ours, which is used if no metric has QuantumGrav's name."""


class Verdict(NamedTuple):
    """The conclusions from a validation."""

    better: bool
    """Whether this is the best model so far."""
    stop: bool
    """Whether to stop training."""


class Watched(Section, frozen=True, kw_only=True):
    """A metric that early stopping watches."""

    metric: str
    """Name of a validation metric, as the task, monitor or evaluator returns it: `accuracy`. `loss_avg` means
    `loss`, unless another metric has that name."""
    mode: Literal["min", "max"] = "min"
    """Whether lower or higher values are better."""
    delta: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """An improvement must exceed this, in the metric's unit."""
    grace_period: NotNegative = 0
    """Validations at the beginning that cost no patience."""
    init_best_score: float | None = None
    """The first value to beat, in the metric's unit."""

    @property
    def worst(self) -> float:
        """The worst possible value: any finite one is better."""
        return math.inf if self.mode == "min" else -math.inf


class Watching(Section, frozen=True, kw_only=True):
    """The arguments of `DefaultEarlyStopping`."""

    patience: Positive | None = 5
    """Training ends after this many consecutive validations without improvement; null: never."""
    tasks: dict[str, Watched] = msgspec.field(default_factory=dict)
    """The watched metrics, each under a name of your choice; left out: the loss, lower is better."""
    mode: Literal["any", "all"] = "any"
    """Whether one of the metrics must improve, or all."""
    min_delta: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """The minimum improvement of the loss, if there are no `tasks`."""


_DEFAULTS = Watching()


class DefaultEarlyStopping:
    """Stops after `patience` evaluations without improvement, as in QuantumGrav; None: never.

    `tasks` maps any name to {metric, delta, grace_period, init_best_score, mode: min or max}; without it, the
    loss must fall by more than `min_delta`. A task improves if its metric is less than best - delta (min) or
    more than best + delta (max). With `mode` any, a single improved task is enough; with all, every task must
    improve. An improvement resets the count of evaluations; others add to it once every grace period is over.

    Raises:
        ConfigError: patience below 1, an unknown mode, or a task without its metric.
    """

    def __init__(
        self,
        tasks: Mapping[Any, Mapping[str, Any]] | None = None,
        patience: int | None = _DEFAULTS.patience,
        mode: str = _DEFAULTS.mode,
        min_delta: float = _DEFAULTS.min_delta,
    ):
        problems: list[str] = []
        given = {"patience": patience, "tasks": _plain(tasks), "mode": mode, "min_delta": min_delta}
        asked: Watching = convert(given, Watching, WHERE, problems)
        if problems:
            raise ConfigError(problems)
        self.patience = asked.patience
        self.mode = asked.mode
        self.waited = 0
        """Consecutive evaluations without improvement, not counting grace periods."""
        self.found_better_model = False
        self.tasks = asked.tasks or {"loss": Watched(metric="loss", delta=asked.min_delta)}
        self.best = {
            name: task.worst if task.init_best_score is None else task.init_best_score
            for name, task in self.tasks.items()
        }
        self.grace = {name: task.grace_period for name, task in self.tasks.items()}

    def __call__(self, metrics: Mapping[str, float]) -> bool:
        """Process an evaluation's metrics; returns whether to stop.

        Raises:
            ConfigError: a task's metric is not among them.
        """
        better = {name for name, task in self.tasks.items() if self._better(name, task, metrics)}
        self.found_better_model = bool(better) if self.mode == "any" else len(better) == len(self.tasks)
        if self.found_better_model:
            self.waited = 0
            for name in better:
                self.best[name] = self._value(name, self.tasks[name], metrics)
        elif not any(self.grace.values()):
            self.waited += 1
        self.grace = {name: max(left - 1, 0) for name, left in self.grace.items()}
        return self.patience is not None and self.waited >= self.patience

    def check(self, metrics: Mapping[str, float]) -> None:
        """Check that each task's metric is among an evaluation's metrics.

        Raises:
            ConfigError: a metric is not.
        """
        for name, task in self.tasks.items():
            self._value(name, task, metrics)

    def _better(self, name: str, task: Watched, metrics: Mapping[str, float]) -> bool:
        value = self._value(name, task, metrics)
        if task.mode == "min":
            return self.best[name] - task.delta > value
        return self.best[name] + task.delta < value

    def _value(self, name: str, task: Watched, metrics: Mapping[str, float]) -> float:
        metric = task.metric if task.metric in metrics else _ALSO.get(task.metric, task.metric)
        if metric not in metrics:
            raise ConfigError(
                [
                    f"{WHERE}.tasks.{name}.metric: is {task.metric!r}, which validation does not "
                    f"measure{did_you_mean(task.metric, metrics)}; name one that it measures "
                    f"({', '.join(metrics) or 'there is none'}), or add the metric as a monitor in "
                    "validation.validator.evaluator_tasks, or in a task's own evaluate()"
                ]
            )
        return float(metrics[metric])

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return {"waited": self.waited, "best": dict(self.best), "grace": dict(self.grace)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a checkpoint."""
        self.waited = int(state["waited"])
        self.best |= {name: float(value) for name, value in state["best"].items() if name in self.best}
        self.grace |= {name: int(value) for name, value in state["grace"].items() if name in self.grace}


class EarlyStopping:
    """Decides after each validation whether the model is the best so far, and whether to stop."""

    def __init__(self, config: Config):
        self._asked = _made(config)
        self._by_default = config.early_stopping is None
        self._warned = False

    @property
    def watched(self) -> tuple[str, Literal["min", "max"]]:
        """The first watched metric (else the loss), and its mode, min or max."""
        tasks = self._asked.tasks if isinstance(self._asked, DefaultEarlyStopping) else {}
        return next(((task.metric, task.mode) for task in tasks.values()), ("loss", "min"))

    def __call__(self, metrics: Mapping[str, float]) -> Verdict:
        """Process a validation's metrics.

        Raises:
            ConfigError: a watched metric is missing.
        """
        if self._by_default and "loss" not in metrics:
            self._report_newest_as_best(metrics)
            return Verdict(better=True, stop=False)
        stop = bool(self._asked(metrics))
        return Verdict(bool(self._asked.found_better_model), stop)

    def check(self, metrics: Mapping[str, float]) -> None:
        """Check that a validation has the watched metrics.

        Raises:
            ConfigError: one is missing.
        """
        if type(self._asked) is DefaultEarlyStopping and not self._by_default:
            self._asked.check(metrics)

    def _report_newest_as_best(self, metrics: Mapping[str, float]) -> None:
        if not self._warned:
            self._warned = True
            words = (
                "Validation measures no loss (but %s), so the newest model counts as the best; name "
                "the metric to watch in early_stopping.kwargs.tasks"
            )
            logger.warning(words, ", ".join(metrics))

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        state_of = getattr(self._asked, "state_dict", None) or self._asked.to_state_dict
        kept: dict[str, Any] = state_of()
        return kept

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a checkpoint."""
        self._asked.load_state_dict(state)


def _plain(tasks: Any) -> Any:
    """The tasks with text as names, and without initial scores that are infinite, which means none in
    QuantumGrav.
    """
    if not isinstance(tasks, Mapping):
        return tasks
    endless = {"init_best_score": None}
    return {
        str(name): {**task, **endless}
        if isinstance(task, Mapping) and task.get("init_best_score") in (math.inf, -math.inf)
        else task
        for name, task in tasks.items()
    }


_BESIDE = ("tasks", "mode", "patience")
"""Arguments that may be given next to `type` instead of in `kwargs`."""


def _made(config: Config) -> Any:
    """Make the object that `early_stopping` names; by default one that never stops and watches the loss."""
    section = config.early_stopping
    if section is None:
        return DefaultEarlyStopping(patience=None)
    make = DefaultEarlyStopping
    if section.type != "DefaultEarlyStopping":
        make = called(section.type, "early_stopping.type", "DefaultEarlyStopping or !pyobject my_module.Mine")
    given_beside = {name: value for name in _BESIDE if (value := getattr(section, name)) is not None}
    problems = [
        f"early_stopping.{name}: is given, and so is {WHERE}.{name}; drop one of them"
        for name in given_beside
        if name in section.kwargs
    ]
    given = {**given_beside, **section.kwargs}
    problems += wrong_arguments(make, given, WHERE, given=len(section.args))
    if problems:
        raise ConfigError(problems)
    args, kwargs = resolved(section.args, "early_stopping.args"), resolved(given, WHERE)
    try:
        return make(*args, **kwargs)
    except (TypeError, ValueError) as error:
        raise ConfigError([f"early_stopping: {error}"]) from error
