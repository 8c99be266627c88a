"""Metrics of a head's outputs over a whole set, by scikit-learn: F1 scores, accuracies, errors.

Each is a class, made with its arguments and then called like every monitor: with a list of the model's
outputs and a list of the targets, an item for each batch. Outputs are {number of a head: (graphs, numbers)},
or such a tensor itself; targets are (graphs, columns), or (graphs,) for one column.
"""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy
import numpy.typing
import torch
from torch import Tensor

from castoff.launcher.typed.suggestion import did_you_mean
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.task.contract import in_words

Array: TypeAlias = "numpy.typing.NDArray[Any]"

__all__ = [
    "F1",
    "R2",
    "Accuracy",
    "MeanAbsoluteError",
    "Precision",
    "Recall",
    "RocAuc",
    "RootMeanSquaredError",
]

_AVERAGES = ("macro", "weighted", "micro", "binary", "none")


class _OfHead(ABC):
    """A metric that compares head `head` with column `column` of the targets.

    `where`: another column; only graphs for which it is above 0 count. NaN if no graph is left.

    Raises:
        ConfigError: an argument is not a whole number of at least 0.
    """

    def __init__(self, head: int = 0, column: int = 0, where: int | None = None):
        arguments = {"head": head, "column": column, **({} if where is None else {"where": where})}
        problems = [
            f"{name}: is {value!r}, but takes a whole number of at least 0"
            for name, value in arguments.items()
            if type(value) is not int or value < 0
        ]
        if problems:
            raise ConfigError(problems)
        self.head, self.column, self.where = head, column, where

    def __call__(self, predictions: Sequence[Any], targets: Sequence[Tensor]) -> Any:
        """The metric over all graphs.

        Raises:
            ConfigError: the outputs have no such head, or the targets no such column.
        """
        outputs = torch.cat([_of_head(prediction, self.head) for prediction in predictions])
        table = torch.cat([_in_columns(target) for target in targets])
        if len(outputs) != len(table):
            raise ConfigError(
                [f"the model returned {len(outputs)} rows for {len(table)} graphs with targets"]
            )
        wanted = _column(table, self.column, "column")
        if self.where is not None:
            counted = _column(table, self.where, "where") > 0
            outputs, wanted = outputs[counted], wanted[counted]
        if not len(wanted):
            return math.nan
        return self.measure(outputs.numpy(), wanted.numpy())

    @abstractmethod
    def measure(self, outputs: Array, wanted: Array) -> Any:
        """The metric of outputs (graphs, numbers) and targets (graphs,) of at least one graph."""


def _of_scikit_learn(name: str) -> Callable[..., Any]:
    """Import one of scikit-learn's metrics when it is needed.

    torchmetrics differs in two: its ROC curve is that of sigmoids in float32, which are 1 for every logit
    above 17, and it gives a class without graphs a score of 0.
    """
    metric: Callable[..., Any] = getattr(importlib.import_module("sklearn.metrics"), name)
    return metric


# --- Classes ------------------------------------------------------------------------------------------


class _ByClass(_OfHead):
    """A score of classes: `average` is macro, weighted, micro or binary; with none, a score of each class.

    A single output is the logit of class 1 against 0; of several outputs, the largest one is the class. A
    class that neither occurs nor is predicted does not count, and its own score is NaN.
    """

    score: str
    """scikit-learn's name of the score."""

    def __init__(
        self, average: str | None = "macro", head: int = 0, column: int = 0, where: int | None = None
    ):
        problems = []
        if (average or "none") not in _AVERAGES:
            near = did_you_mean(average, _AVERAGES)
            problems.append(f"average: is {average!r}, but takes {', '.join(_AVERAGES)}{near}")
        try:
            super().__init__(head, column, where)
        except ConfigError as error:
            problems += error.problems
        if problems:
            raise ConfigError(problems)
        self.average = None if average == "none" else average

    def measure(self, outputs: Array, wanted: Array) -> Any:
        """A number, or a list with one for each class."""
        score = _of_scikit_learn(self.score)
        predicted, classes = _classes(outputs), max(outputs.shape[1], 2)
        true = _whole(wanted, classes)
        if self.average is None:
            labels = list(range(classes))
            scores = score(true, predicted, average=None, labels=labels, zero_division=0)
            occurring = {*true.tolist(), *predicted.tolist()}
            return [float(value) if label in occurring else math.nan for label, value in enumerate(scores)]
        return float(score(true, predicted, average=self.average, zero_division=0))


class F1(_ByClass):
    """The harmonic mean of precision and recall."""

    score = "f1_score"


class Precision(_ByClass):
    """The share of graphs that are of a class, among those predicted to be."""

    score = "precision_score"


class Recall(_ByClass):
    """The share of a class's graphs that are predicted to be of it."""

    score = "recall_score"


class Accuracy(_OfHead):
    """The share of graphs whose class is predicted correctly."""

    def measure(self, outputs: Array, wanted: Array) -> float:
        """A number from 0 to 1."""
        return float((_classes(outputs) == _whole(wanted, max(outputs.shape[1], 2))).mean())


class RocAuc(_OfHead):
    """The area under the ROC curve, of true over false positives, of one output, the logit of class 1.

    NaN if there is only one class, or an output is not finite.
    """

    def measure(self, outputs: Array, wanted: Array) -> float:
        """A number from 0 to 1."""
        logits, classes = _single(outputs, self.head), _whole(wanted, 2)
        if len(numpy.unique(classes)) < 2 or not numpy.isfinite(logits).all():
            return math.nan
        return float(_of_scikit_learn("roc_auc_score")(classes, logits))


# --- Numbers ------------------------------------------------------------------------------------------


class _OfNumbers(_OfHead):
    """A metric of one output that is a number; NaN if a value is not finite, or there are too few graphs."""

    score: str
    """scikit-learn's name of the score."""
    least = 1
    """The fewest graphs for which the metric can be computed."""

    def measure(self, outputs: Array, wanted: Array) -> float:
        """A number, in the target's unit or without any."""
        predicted = _single(outputs, self.head)
        if len(wanted) < self.least or not (numpy.isfinite(predicted).all() and numpy.isfinite(wanted).all()):
            return math.nan
        return float(_of_scikit_learn(self.score)(wanted, predicted))


class MeanAbsoluteError(_OfNumbers):
    """The mean absolute difference between outputs and targets."""

    score = "mean_absolute_error"


class RootMeanSquaredError(_OfNumbers):
    """The root of the mean squared difference between outputs and targets."""

    score = "root_mean_squared_error"


class R2(_OfNumbers):
    """The share of the targets' variance that outputs explain: 1 is all, 0 as much as the targets' mean.

    NaN for fewer than two graphs.
    """

    score = "r2_score"
    least = 2


# --- Heads and columns ----------------------------------------------------------------------------------


def _of_head(outputs: Any, head: int) -> Tensor:
    """A head's outputs of a batch, (graphs, numbers)."""
    if isinstance(outputs, Mapping):
        if head not in outputs:
            heads = ", ".join(map(str, outputs))
            raise ConfigError([f"head: is {head}, but the model returned the outputs of {heads}"])
        outputs = outputs[head]
    elif head:
        raise ConfigError(
            [f"head: is {head}, but the model returned {in_words(outputs)}, not a dict of heads"]
        )
    if not isinstance(outputs, Tensor) or outputs.dim() not in (1, 2):
        write = "it takes a tensor of shape (graphs, numbers)"
        raise ConfigError([f"head: {head} returned {in_words(outputs)}, but {write}"])
    return outputs[:, None] if outputs.dim() == 1 else outputs


def _in_columns(targets: Any) -> Tensor:
    if not isinstance(targets, Tensor) or targets.dim() not in (1, 2):
        raise ConfigError([f"the targets are {in_words(targets)}, but it takes y of shape (graphs, columns)"])
    return targets[:, None] if targets.dim() == 1 else targets


def _column(table: Tensor, number: int, argument: str) -> Tensor:
    if number >= table.shape[1]:
        raise ConfigError(
            [f"{argument}: is {number}, but the targets have columns 0 to {table.shape[1] - 1}"]
        )
    return table[:, number]


def _classes(outputs: Array) -> Array:
    """The class that each row predicts."""
    if outputs.shape[1] == 1:
        logits: Array = (outputs[:, 0] > 0).astype(numpy.int64)
        return logits
    largest: Array = outputs.argmax(axis=1)
    return largest


def _whole(wanted: Array, classes: int) -> Array:
    """Targets as class numbers.

    Raises:
        ConfigError: some are not class numbers.
    """
    numbers: Array = wanted.astype(numpy.int64)
    wrong = (numbers != wanted) | (numbers < 0) | (numbers >= classes)
    if wrong.any():
        first = wanted[wrong][0]
        expected = f"whole numbers from 0 to {classes - 1}, because the head has {classes} classes"
        raise ConfigError([f"column: holds {first:g}, but it takes {expected}"])
    return numbers


def _single(outputs: Array, head: int) -> Array:
    if outputs.shape[1] != 1:
        raise ConfigError([f"head: {head} returned {outputs.shape[1]} numbers per graph, but it takes one"])
    single: Array = outputs[:, 0]
    return single
