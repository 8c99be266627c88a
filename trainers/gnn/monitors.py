"""Metrics of a head's outputs over a whole set, by scikit-learn: F1 scores, accuracies, errors.

Each is a class, made with its arguments and then called with what monitors are called with: the model's
outputs and the targets, a list of each with an item a batch. Outputs are {number of a head: (graphs,
numbers)}, or such a tensor itself; targets are (graphs, columns), or (graphs,) where there is one column.
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

    `where`: another column; graphs count alone where it is above 0. NaN where no graph is left.

    Raises:
        ConfigError: an argument is not a whole number of at least 0.
    """

    def __init__(self, head: int = 0, column: int = 0, where: int | None = None):
        given = {"head": head, "column": column, **({} if where is None else {"where": where})}
        problems = [
            f"{name}: is {value!r}, but takes a whole number of at least 0"
            for name, value in given.items()
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
            raise ConfigError([f"the model gave {len(outputs)} rows for {len(table)} graphs with targets"])
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
    """One of its metrics, imported when it is needed.

    torchmetrics differs in two: its ROC curve is that of sigmoids in float32, which are 1 for every logit
    above 17, and it gives a class that nothing is of a score of 0.
    """
    found: Callable[..., Any] = getattr(importlib.import_module("sklearn.metrics"), name)
    return found


# --- Classes ------------------------------------------------------------------------------------------


class _ByClass(_OfHead):
    """A score of classes: `average` of macro, weighted, micro or binary; none: of each class.

    One output is the logit of class 1 against 0; of several the largest one is the class. A class that
    neither is there nor was predicted does not count, and has NaN as its own score.
    """

    score: str
    """What scikit-learn calls it."""

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
        found, classes = _classes(outputs), max(outputs.shape[1], 2)
        true = _whole(wanted, classes)
        if self.average is None:
            labels = list(range(classes))
            scores = score(true, found, average=None, labels=labels, zero_division=0)
            there = {*true.tolist(), *found.tolist()}
            return [float(each) if label in there else math.nan for label, each in enumerate(scores)]
        return float(score(true, found, average=self.average, zero_division=0))


class F1(_ByClass):
    """The harmonic mean of precision and recall."""

    score = "f1_score"


class Precision(_ByClass):
    """The share of what was taken for a class that is of it."""

    score = "precision_score"


class Recall(_ByClass):
    """The share of a class that was taken for it."""

    score = "recall_score"


class Accuracy(_OfHead):
    """The share of graphs whose class was found."""

    def measure(self, outputs: Array, wanted: Array) -> float:
        """A number from 0 to 1."""
        return float((_classes(outputs) == _whole(wanted, max(outputs.shape[1], 2))).mean())


class RocAuc(_OfHead):
    """The area under the curve of true over false positives, of one output, the logit of class 1.

    NaN where there is one class alone, or an output that is not a number.
    """

    def measure(self, outputs: Array, wanted: Array) -> float:
        """A number from 0 to 1."""
        logits, classes = _single(outputs, self.head), _whole(wanted, 2)
        if len(numpy.unique(classes)) < 2 or not numpy.isfinite(logits).all():
            return math.nan
        return float(_of_scikit_learn("roc_auc_score")(classes, logits))


# --- Numbers ------------------------------------------------------------------------------------------


class _OfNumbers(_OfHead):
    """A metric of one output that is a number; NaN where it or its target is not finite, or of too few."""

    score: str
    """What scikit-learn calls it."""
    least = 1
    """Graphs that it takes."""

    def measure(self, outputs: Array, wanted: Array) -> float:
        """A number, in the target's unit or without any."""
        found = _single(outputs, self.head)
        if len(wanted) < self.least or not (numpy.isfinite(found).all() and numpy.isfinite(wanted).all()):
            return math.nan
        return float(_of_scikit_learn(self.score)(wanted, found))


class MeanAbsoluteError(_OfNumbers):
    """How far outputs lie from their targets, on average."""

    score = "mean_absolute_error"


class RootMeanSquaredError(_OfNumbers):
    """The same, with large errors counting for more."""

    score = "root_mean_squared_error"


class R2(_OfNumbers):
    """The share of the targets' variance that outputs explain: 1 is all, 0 what their mean does.

    NaN of fewer than two graphs.
    """

    score = "r2_score"
    least = 2


# --- Heads and columns ----------------------------------------------------------------------------------


def _of_head(outputs: Any, head: int) -> Tensor:
    """A head's outputs of a batch, (graphs, numbers)."""
    if isinstance(outputs, Mapping):
        if head not in outputs:
            there = ", ".join(map(str, outputs))
            raise ConfigError([f"head: is {head}, but the model gave the outputs of {there}"])
        outputs = outputs[head]
    elif head:
        raise ConfigError([f"head: is {head}, but the model gave {in_words(outputs)}, no dict of heads"])
    if not isinstance(outputs, Tensor) or outputs.dim() not in (1, 2):
        write = "it takes a tensor of shape (graphs, numbers)"
        raise ConfigError([f"head: {head} gave {in_words(outputs)}, but {write}"])
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
    """The class that each row means."""
    if outputs.shape[1] == 1:
        logits: Array = (outputs[:, 0] > 0).astype(numpy.int64)
        return logits
    largest: Array = outputs.argmax(axis=1)
    return largest


def _whole(wanted: Array, classes: int) -> Array:
    """Targets as numbers of classes.

    Raises:
        ConfigError: some are none.
    """
    numbers: Array = wanted.astype(numpy.int64)
    wrong = (numbers != wanted) | (numbers < 0) | (numbers >= classes)
    if wrong.any():
        first = wanted[wrong][0]
        what = f"whole numbers from 0 to {classes - 1}, as the head tells apart {classes} classes"
        raise ConfigError([f"column: holds {first:g}, but it takes {what}"])
    return numbers


def _single(outputs: Array, head: int) -> Array:
    if outputs.shape[1] != 1:
        raise ConfigError([f"head: {head} gave {outputs.shape[1]} numbers a graph, but it takes one"])
    single: Array = outputs[:, 0]
    return single
