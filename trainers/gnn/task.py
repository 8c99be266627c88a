"""Telling manifold-like causal sets from others, and their dimension: two heads, one network."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, smooth_l1_loss
from torch_geometric.data import Batch

from trainers.core.fields import ConfigError
from trainers.gnn.data import FEATURES, Causets
from trainers.gnn.model import GNNModel
from trainers.gnn.report import linear_error, table
from trainers.task import Loss, Splits, Sum, Task

MANIFOLD, DIMENSION = 0, 1
"""The heads."""

MOST_ELEMENTS = 20_000
"""A causal set is a matrix: so many elements need some 10 GB while one is made."""


class CausetTask(Task):
    """Head 0: a logit that the set is manifold-like. Head 1: its dimension, where it is.

    `model` holds arguments of `GNNModel`, `sets` the sizes of the training, validation and test set,
    `mean` the expected number of elements. No set is in two of the three.

    Raises:
        ConfigError: with every argument that makes no sense.
    """

    def __init__(
        self,
        model: Mapping[str, Any] | None = None,
        sets: Sequence[int] = (4000, 500, 1000),
        mean: float = 64.0,
        seed: int = 0,
    ):
        problems = [*_wrong_model(model), *_wrong_sets(sets)]
        if not _is_number(mean) or not 2 <= mean <= MOST_ELEMENTS:
            problems.append(f"mean: is {mean!r}, but takes a number from 2 to {MOST_ELEMENTS}")
        if type(seed) is not int or seed < 0:
            problems.append(f"seed: is {seed!r}, but takes a whole number of at least 0")
        if problems:
            raise ConfigError([f"task_kwargs.{problem}" for problem in problems])
        self._model = dict(model or {})
        self._sets = tuple(sets)
        self._mean = mean
        self._seed = seed

    def build_model(self) -> nn.Module:
        """The network."""
        try:
            return GNNModel(FEATURES, **self._model)
        except ValueError as error:
            raise ConfigError([f"task_kwargs.model.{error}"]) from error

    def build_data(self) -> Splits:
        """Three runs of indices, one after the other."""
        firsts = [0, self._sets[0], self._sets[0] + self._sets[1]]
        return Splits(
            *(
                Causets(length, mean=self._mean, seed=self._seed, first=first)
                for first, length in zip(firsts, self._sets, strict=True)
            )
        )

    def collate(self, samples: list[Any]) -> Any:
        """One large graph of many small ones."""
        return Batch.from_data_list(samples)

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """Binary cross-entropy, plus the dimension's error where there is a dimension."""
        return Loss(_total(_outputs(model, batch), batch))

    def evaluate(self, model: nn.Module, batch: Any) -> Mapping[str, Sum]:
        """The loss, the classifier's accuracy, and the dimension's mean absolute errors.

        `dimension_error` is the network's, `estimator_error` that of Myrheim and Meyer.
        """
        outputs = _outputs(model, batch)
        sums: dict[str, Sum] = {"loss": (_total(outputs, batch), None)}
        manifold = batch.manifold > 0
        if MANIFOLD in outputs:
            right = (outputs[MANIFOLD].squeeze(1) > 0) == manifold
            sums["accuracy"] = (right.sum(), len(right))
        if DIMENSION in outputs and manifold.any():
            error = (dimension(outputs) - batch.dimension).abs()[manifold]
            estimated = (batch.estimate - batch.dimension).abs()[manifold]
            sums["dimension_error"] = (error.sum(), len(error))
            sums["estimator_error"] = (estimated.sum(), len(estimated))
        return sums

    def report(self, measures: Mapping[str, float], train: Any, test: Any) -> tuple[str, dict[str, float]]:
        """What the network is worth, in words, and the dimension's errors that it is compared with."""
        line = None
        if isinstance(train, Causets) and isinstance(test, Causets) and "dimension_error" in measures:
            line = linear_error(train, test)
        others = {"Myrheim-Meyer": measures.get("estimator_error"), "linear fit": line}
        return table(measures, line), {name: each for name, each in others.items() if each is not None}


def _outputs(model: nn.Module, batch: Any) -> dict[int, Tensor]:
    outputs: dict[int, Tensor] = model(batch.x, batch.edge_index, batch.batch, batch.num_graphs)
    return outputs


def _total(outputs: Mapping[int, Tensor], batch: Any) -> Tensor:
    """The sum of the losses of a batch's sets."""
    total: Tensor = torch.zeros((), device=batch.x.device)
    if MANIFOLD in outputs:
        logits = outputs[MANIFOLD].squeeze(1)
        total = total + binary_cross_entropy_with_logits(logits, batch.manifold, reduction="sum")
    if DIMENSION in outputs:
        errors = smooth_l1_loss(dimension(outputs), batch.dimension, reduction="none")
        total = total + (errors * batch.manifold).sum()
    return total


def dimension(outputs: Mapping[int, Tensor]) -> Tensor:
    """The dimension that the second head means; 3 is the middle of those there are."""
    return 3.0 + outputs[DIMENSION].squeeze(1)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _wrong_model(model: Any) -> list[str]:
    """What is wrong with the names of the network's arguments; it judges the values itself."""
    if model is None:
        return []
    if not isinstance(model, Mapping):
        return [f"model: is {model!r}, but takes arguments of GNNModel by name"]
    names = [name for name in inspect.signature(GNNModel).parameters if name not in ("in_dim", "heads")]
    problems = []
    for name in model:
        if name not in names:
            near = difflib.get_close_matches(str(name), names, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(names)}"
            problems.append(f"model.{name}: there is no such field{hint}")
    return problems


def _wrong_sets(sets: Any) -> list[str]:
    if (
        isinstance(sets, (list, tuple))
        and len(sets) == 3
        and all(type(size) is int and size >= 0 for size in sets)
        and sets[0] > 0
    ):
        return []
    return [f"sets: is {sets!r}, but takes three sizes, as in [4000, 500, 1000]: training, validation, test"]
