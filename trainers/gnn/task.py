"""Telling manifold-like causal sets from others, and their dimension: two heads, one network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, smooth_l1_loss
from torch_geometric.data import Batch

from trainers.gnn.data import FEATURES, Causets
from trainers.gnn.model import GNNModel
from trainers.task import Loss, Splits, Sum, Task

MANIFOLD, DIMENSION = 0, 1
"""The heads."""


class CausetTask(Task):
    """Head 0: a logit that the set is manifold-like. Head 1: its dimension, where it is.

    `model` holds arguments of `GNNModel`, `sets` the three sizes, `mean` the expected number of
    elements. No set is in two of the three.
    """

    def __init__(
        self,
        model: Mapping[str, Any] | None = None,
        sets: tuple[int, int, int] = (4000, 500, 1000),
        mean: float = 64.0,
        seed: int = 0,
    ):
        self._model = dict(model or {})
        self._sets = tuple(sets)
        self._mean = mean
        self._seed = seed

    def build_model(self) -> nn.Module:
        """The network."""
        return GNNModel(FEATURES, **self._model)

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
        outputs = model(batch.x, batch.edge_index, batch.batch, batch.num_graphs)
        total: Tensor = torch.zeros((), device=batch.x.device)
        if MANIFOLD in outputs:
            logits = outputs[MANIFOLD].squeeze(1)
            total = total + binary_cross_entropy_with_logits(logits, batch.manifold, reduction="sum")
        if DIMENSION in outputs:
            errors = smooth_l1_loss(dimension(outputs), batch.dimension, reduction="none")
            total = total + (errors * batch.manifold).sum()
        return Loss(total, int(batch.num_graphs))

    def evaluate(self, model: nn.Module, batch: Any) -> Mapping[str, Sum]:
        """The loss, the classifier's accuracy, and the dimension's mean absolute errors.

        `dimension_error` is the network's, `estimator_error` that of Myrheim and Meyer.
        """
        loss = self.loss(model, batch)
        outputs = model(batch.x, batch.edge_index, batch.batch, batch.num_graphs)
        sums: dict[str, Sum] = {"loss": (loss.total, loss.count)}
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


def dimension(outputs: Mapping[int, Tensor]) -> Tensor:
    """The dimension that the second head means; 3 is the middle of those there are."""
    return 3.0 + outputs[DIMENSION].squeeze(1)
