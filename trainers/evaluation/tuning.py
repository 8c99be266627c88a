"""A search by Optuna: makes each trial's configuration, and reports its training to the study.

The caller who has a trial imports Optuna; without a trial this module does not need it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.configuration.sweep import axes, of_member
from castoff.trainers.configuration.tags import Axis, FieldPath, Range, Sweep, text_of
from castoff.trainers.configuration.yaml_text import in_a_line

if TYPE_CHECKING:
    from castoff.trainers.configuration.config import Config
    from castoff.trainers.distributed.process_group import RankContext as Rank


def suggested(fields: Mapping[str, Any], trial: Any, context: Rank | None = None) -> dict[str, Any]:
    """The configuration's data, with a trial's suggestion in place of each sweep.

    A `!sweep` becomes a categorical parameter, a `!range` a number with a step, and a `!random_uniform` a
    number between two, on a logarithmic scale with `log`. A parameter is named by its field's path, such as
    `model.layers.0.width`. With the `context` that `initialize_ddp` returns, all ranks call it and get the
    same: rank 0 passes the trial, the others None.

    Raises:
        ConfigError: a sweep or a reference is wrong.
    """
    if context is None:
        return _suggested(fields, trial)
    return context.on_main(lambda: _suggested(fields, trial))


def _suggested(fields: Mapping[str, Any], trial: Any) -> dict[str, Any]:
    problems: list[str] = []
    swept = axes(fields, problems)
    if problems:
        raise ConfigError(problems)
    values: dict[FieldPath, Any] = {}
    for axis in swept:
        index, values[axis.place] = _one(axis.node, text_of(axis.place), trial)
        values |= {place: node.values[index] for place, node in axis.coupled}
    settled = of_member(fields, values, trial.number, None, problems)
    if problems:
        raise ConfigError(problems)
    return settled


def _one(node: Axis, name: str, trial: Any) -> tuple[int, Any]:
    """A trial's suggestion for a sweep: the value's index (0 for `!random_uniform`), and the value."""
    if isinstance(node, Sweep):
        choices = _choices(node.values)
        index = choices.index(trial.suggest_categorical(name, choices))
        return index, node.values[index]
    if not isinstance(node, Range):
        return 0, trial.suggest_float(name, node.start, node.stop, log=node.log)
    low, high = sorted((node.value(0, ""), node.value(node.size - 1, "")))
    suggest = trial.suggest_int if node.whole else trial.suggest_float
    drawn = suggest(name, low, high, step=abs(node.step))
    index = round((drawn - node.start) / node.step)
    return index, node.value(index, "")


def _choices(values: list[Any]) -> list[Any]:
    """Choices that Optuna can store: the values, or numbered texts if some are sections or equal."""
    plain = all(value is None or type(value) in (bool, int, float, str) for value in values)
    if plain and len(set(values)) == len(values):
        return values
    return [f"{number}: {in_a_line(value)}" for number, value in enumerate(values)]


class Search:
    """Reports a training to its Optuna study, on rank 0; without a trial it does nothing.

    `watched`: the reported metric, and its mode, min or max.
    """

    pruned = False
    """Whether the study has pruned the trial; the same on all ranks."""

    def __init__(self, trial: Any, watched: tuple[str, Literal["min", "max"]], config: Config):
        self._trial = trial
        self._metric, self._mode = watched
        self._by_epochs = config.training.num_steps is None and config.validation.every_steps is None
        self._reported: set[int] = set()

    def begin(self) -> None:
        """Check the study's direction, and read the trial's reports from before an interruption.

        Raises:
            ConfigError: the study's direction contradicts the metric's mode.
        """
        study = getattr(self._trial, "study", None)  # a FixedTrial has none
        if study is None:
            return
        same_trial = (
            trial for trial in study.get_trials(deepcopy=False) if trial.number == self._trial.number
        )
        self._reported = {when for each in same_trial for when in each.intermediate_values}
        if len(study.directions) == 1:
            self._check(study.direction.name.lower())

    def should_prune(self, metrics: Mapping[str, float], epoch: int, step: int) -> bool:
        """Report a validation, unless an earlier start did; returns whether to prune the trial.

        Raises:
            ConfigError: the watched metric is missing.
        """
        if self._trial is None:
            return False
        if self._metric not in metrics:
            measured = ", ".join(metrics) or "nothing"
            raise ConfigError([f"the trial should report {self._metric}, but validation measures {measured}"])
        when = epoch if self._by_epochs else step
        if when not in self._reported:
            self._trial.report(float(metrics[self._metric]), when)
            self._reported.add(when)
        return bool(self._trial.should_prune())

    def end(self, step: int) -> None:
        """Raise optuna.TrialPruned if the study has pruned the trial.

        Raises:
            optuna.TrialPruned: the trial was pruned.
        """
        if self.pruned:
            raise importlib.import_module("optuna").TrialPruned(f"pruned at step {step}")

    def _check(self, direction: str) -> None:
        metric, mode = self._metric, self._mode
        if direction != f"{mode}imize":
            raise ConfigError(
                [
                    f"the study should {direction} its objective, but {metric} should be as "
                    f"{'small' if mode == 'min' else 'large'} as possible: "
                    f'optuna.create_study(direction="{mode}imize"), or let early_stopping watch '
                    "another metric"
                ]
            )
