"""A search by Optuna: a configuration for each trial, and what its training reports to the study.

Optuna is imported by whoever has a trial; without one nothing here needs it.
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
        ConfigError: something is wrong with the sweeps or references.
    """
    if context is None:
        return _suggested(fields, trial)
    return context.on_main(lambda: _suggested(fields, trial))


def _suggested(fields: Mapping[str, Any], trial: Any) -> dict[str, Any]:
    problems: list[str] = []
    found = axes(fields, problems)
    if problems:
        raise ConfigError(problems)
    values: dict[FieldPath, Any] = {}
    for axis in found:
        index, values[axis.place] = _one(axis.node, text_of(axis.place), trial)
        values |= {place: node.values[index] for place, node in axis.coupled}
    settled = of_member(fields, values, trial.number, None, problems)
    if problems:
        raise ConfigError(problems)
    return settled


def _one(node: Axis, name: str, trial: Any) -> tuple[int, Any]:
    """What a trial suggests for a sweep: which of its values it is, where they are counted, and the value."""
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
    """What Optuna can keep: the values, or texts that tell them, where some are sections, say, or alike."""
    plain = all(value is None or type(value) in (bool, int, float, str) for value in values)
    if plain and len(set(values)) == len(values):
        return values
    return [f"{number}: {in_a_line(value)}" for number, value in enumerate(values)]


class Search:
    """Reports a training to the study that it is a trial of, on rank 0; without a trial, nothing.

    `watched`: the metric that is reported, and whether it is to fall or to rise.
    """

    pruned = False
    """Whether the study has seen enough; all ranks know."""

    def __init__(self, trial: Any, watched: tuple[str, Literal["min", "max"]], config: Config):
        self._trial = trial
        self._metric, self._mode = watched
        self._by_epochs = config.training.num_steps is None and config.validation.every_steps is None
        self._reported: set[int] = set()

    def begin(self) -> None:
        """Read the study's direction, and what was reported to the trial before an interruption.

        Raises:
            ConfigError: the study looks for the largest of what is to fall, or the other way round.
        """
        study = getattr(self._trial, "study", None)  # a FixedTrial has none
        if study is None:
            return
        there = (trial for trial in study.get_trials(deepcopy=False) if trial.number == self._trial.number)
        self._reported = {when for each in there for when in each.intermediate_values}
        if len(study.directions) == 1:
            self._check(study.direction.name.lower())

    def should_prune(self, metrics: Mapping[str, float], epoch: int, step: int) -> bool:
        """Report a validation, unless an earlier start has reported it; whether the trial is to end.

        Raises:
            ConfigError: what is watched was not measured.
        """
        if self._trial is None:
            return False
        if self._metric not in metrics:
            there = ", ".join(metrics) or "nothing"
            raise ConfigError([f"the trial is to report {self._metric}, but validation measures {there}"])
        when = epoch if self._by_epochs else step
        if when not in self._reported:
            self._trial.report(float(metrics[self._metric]), when)
            self._reported.add(when)
        return bool(self._trial.should_prune())

    def end(self, step: int) -> None:
        """Leave a training that the study has ended.

        Raises:
            optuna.TrialPruned: it has.
        """
        if self.pruned:
            raise importlib.import_module("optuna").TrialPruned(f"pruned at step {step}")

    def _check(self, direction: str) -> None:
        metric, mode = self._metric, self._mode
        if direction != f"{mode}imize":
            raise ConfigError(
                [
                    f"the study is to {direction} its objective, but {metric} is to be as "
                    f"{'small' if mode == 'min' else 'large'} as can be: "
                    f'optuna.create_study(direction="{mode}imize"), or have early_stopping watch another'
                ]
            )
