"""When training ends because it no longer improves."""

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
"""QuantumGrav's name for a metric, and ours, which counts where nothing else is called so."""


class Verdict(NamedTuple):
    """The consequences of a validation."""

    better: bool
    """Whether this is the best model so far."""
    stop: bool
    """Whether it is time to stop."""


class Watched(Section, frozen=True, kw_only=True):
    """A metric that should improve."""

    metric: str
    """A metric of validation, by the name that the task, monitor or evaluator gives it: `accuracy`.
    `loss_avg` means `loss`, unless another metric has that name."""
    mode: Literal["min", "max"] = "min"
    """Whether lower or higher is better."""
    delta: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """The minimum improvement, which must be exceeded, in the metric's unit."""
    grace_period: NotNegative = 0
    """Validations at the beginning that cost no patience."""
    init_best_score: float | None = None
    """The first value to beat, in the metric's unit."""

    @property
    def worst(self) -> float:
        """A value than which any other is better."""
        return math.inf if self.mode == "min" else -math.inf


class Watching(Section, frozen=True, kw_only=True):
    """The arguments of `DefaultEarlyStopping`."""

    patience: Positive | None = 5
    """Training ends after so many validations in a row without improvement; null: never."""
    tasks: dict[str, Watched] = msgspec.field(default_factory=dict)
    """What is watched, each by a name of your choice; left out: the loss, lower is better."""
    mode: Literal["any", "all"] = "any"
    """Whether one of them must improve, or all."""
    min_delta: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """The minimum improvement of the loss, if there are no `tasks`."""


_DEFAULTS = Watching()


class DefaultEarlyStopping:
    """Stops when nothing has got better for `patience` evaluations, as QuantumGrav has it; None: never.

    `tasks` maps any name to {metric, delta, grace_period, init_best_score, mode: min or max};
    without it the loss is to fall, by `min_delta`. Better is less than best - delta (min), more than
    best + delta (max). With `mode` any, one task that got better is enough, with all, every one must. Getting
    better resets the patience; not getting better costs one, but only when every grace period is
    over.

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
        """Evaluations in a row that were no better, grace periods apart."""
        self.found_better_model = False
        self.tasks = asked.tasks or {"loss": Watched(metric="loss", delta=asked.min_delta)}
        self.best = {
            name: task.worst if task.init_best_score is None else task.init_best_score
            for name, task in self.tasks.items()
        }
        self.grace = {name: task.grace_period for name, task in self.tasks.items()}

    def __call__(self, metrics: Mapping[str, float]) -> bool:
        """Take an evaluation's metrics in; whether it is time to stop.

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
        """See that each task's metric is among an evaluation's metrics.

        Raises:
            ConfigError: it is not.
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
                    f"{WHERE}.tasks.{name}.metric: is {task.metric!r}, which validation does not measure"
                    f"{did_you_mean(task.metric, metrics)}; name one that it does "
                    f"({', '.join(metrics) or 'there is none'}), or have it measured: by a monitor in "
                    "validation.validator.evaluator_tasks, or by a task's own evaluate()"
                ]
            )
        return float(metrics[metric])

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"waited": self.waited, "best": dict(self.best), "grace": dict(self.grace)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a checkpoint."""
        self.waited = int(state["waited"])
        self.best |= {name: float(value) for name, value in state["best"].items() if name in self.best}
        self.grace |= {name: int(value) for name, value in state["grace"].items() if name in self.grace}


class EarlyStopping:
    """Says after each validation whether the model is the best so far, and whether to stop."""

    def __init__(self, config: Config):
        self._asked = _made(config)
        self._by_default = config.early_stopping is None
        self._warned = False

    @property
    def watched(self) -> tuple[str, Literal["min", "max"]]:
        """The first metric that is watched, else the loss, and whether it is to fall or to rise."""
        tasks = self._asked.tasks if isinstance(self._asked, DefaultEarlyStopping) else {}
        return next(((task.metric, task.mode) for task in tasks.values()), ("loss", "min"))

    def __call__(self, metrics: Mapping[str, float]) -> Verdict:
        """Take a validation in.

        Raises:
            ConfigError: it lacks what is watched.
        """
        if self._by_default and "loss" not in metrics:
            self._report_newest_as_best(metrics)
            return Verdict(better=True, stop=False)
        stop = bool(self._asked(metrics))
        return Verdict(bool(self._asked.found_better_model), stop)

    def check(self, metrics: Mapping[str, float]) -> None:
        """See that a validation has what is watched.

        Raises:
            ConfigError: it lacks it.
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
        """What a checkpoint keeps."""
        own = getattr(self._asked, "state_dict", None) or self._asked.to_state_dict
        kept: dict[str, Any] = own()
        return kept

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a checkpoint."""
        self._asked.load_state_dict(state)


def _plain(tasks: Any) -> Any:
    """Tasks whose names are texts, and without an infinite score: how others say that there is none yet."""
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
"""Arguments that may stand beside the type."""


def _made(config: Config) -> Any:
    """What `early_stopping` names; without it, one that never stops and watches the loss."""
    asked = config.early_stopping
    if asked is None:
        return DefaultEarlyStopping(patience=None)
    make = DefaultEarlyStopping
    if asked.type != "DefaultEarlyStopping":
        make = called(asked.type, "early_stopping.type", "DefaultEarlyStopping or !pyobject my_module.Mine")
    beside = {name: value for name in _BESIDE if (value := getattr(asked, name)) is not None}
    problems = [
        f"early_stopping.{name}: is given, and so is {WHERE}.{name}; drop one of them"
        for name in beside
        if name in asked.kwargs
    ]
    given = {**beside, **asked.kwargs}
    problems += wrong_arguments(make, given, WHERE, given=len(asked.args))
    if problems:
        raise ConfigError(problems)
    args, kwargs = resolved(asked.args, "early_stopping.args"), resolved(given, WHERE)
    try:
        return make(*args, **kwargs)
    except (TypeError, ValueError) as error:
        raise ConfigError([f"early_stopping: {error}"]) from error
