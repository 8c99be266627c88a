"""Loss functions: criteria(outputs, batch), each the mean over a batch's graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, smooth_l1_loss

from castoff.trainers.configuration.fields import ConfigError

__all__ = ["manifold_and_dimension"]

MANIFOLD_LIKE, DIMENSION = 0, 1
"""The numbers of the heads, and of the columns of `y` that they predict."""

WEIGHT = 2.0
"""Weight of the dimension's error; that of the cross-entropy is 1."""

BEND = 0.1
"""Errors below this count by their square, since the gradient of an absolute error does not vanish near 0."""


def manifold_and_dimension(outputs: Mapping[int, Tensor], batch: Any) -> Tensor:
    """The cross-entropy of head 0, the logit that a set is manifold-like, plus WEIGHT times the error of head
    1, the dimension.

    `batch.y` (graphs, 2): 1 or 0, and the dimension; a graph with dimension 0 has none, and no error. The
    mean is over all graphs, and only active heads count.

    Raises:
        ConfigError: the outputs or the targets have another form.
    """
    _check(outputs, batch)
    targets = batch.y.float()
    total: Tensor = targets.new_zeros(())
    if MANIFOLD_LIKE in outputs:
        logits = outputs[MANIFOLD_LIKE].squeeze(1).float()
        total = total + binary_cross_entropy_with_logits(logits, targets[:, MANIFOLD_LIKE])
    if DIMENSION in outputs:
        true = targets[:, DIMENSION]
        errors = smooth_l1_loss(outputs[DIMENSION].squeeze(1).float(), true, reduction="none", beta=BEND)
        total = total + WEIGHT * (errors * (true > 0)).mean()
    return total


def _check(outputs: Any, batch: Any) -> None:
    heads = set(outputs) if isinstance(outputs, Mapping) else set()
    if not heads or not heads <= {MANIFOLD_LIKE, DIMENSION}:
        actual = f"heads {sorted(heads)}" if heads else f"a {type(outputs).__name__}"
        raise ConfigError(
            [
                "criterion: manifold_and_dimension is for the heads 0 and 1, but the model has "
                f"{actual}; name your own criterion"
            ]
        )
    for head, output in outputs.items():
        if output.dim() != 2 or output.shape[1] != 1:
            raise ConfigError(
                [
                    f"criterion: manifold_and_dimension takes one number per graph from head {head}, "
                    f"whose output has the shape {list(output.shape)}; let its last layer have a width "
                    "of 1"
                ]
            )
    shape = list(batch.y.shape) if getattr(batch, "y", None) is not None else None
    if shape is None or len(shape) != 2 or shape[1] < 2:
        raise ConfigError(
            [
                "criterion: manifold_and_dimension takes a y of two columns, manifold-like or not and "
                f"the dimension, but it is {shape}; name your own criterion"
            ]
        )
