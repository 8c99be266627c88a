"""Refuses weights that are NaN or infinite, which must never replace a good checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import torch

from castoff.trainers.configuration.fields import UserError

_ON_ONE_CORE = 30_000
"""The most numbers that torch sums on one thread; more threads would take cores from training."""


class NonFiniteWeights(UserError):
    """Weights are NaN or infinite, so no checkpoint was written; the text names the tensor."""


def refuse_non_finite(
    step: int, weights: Iterable[tuple[str, torch.Tensor]], infinite: Collection[str]
) -> None:
    """Check that weights are finite, except those whose names, without the part's, are in `infinite`.

    Raises:
        NonFiniteWeights: they are not.
    """
    for name, tensor in weights:
        if not finite(tensor) and name.partition(".")[2] not in infinite:
            raise NonFiniteWeights(
                f"the weights of step {step} were not saved as a checkpoint, because they are NaN or "
                f"infinite, first in {name}; earlier checkpoints are unchanged"
            )


def finite(tensor: torch.Tensor) -> bool:
    """Whether every number in a tensor is finite, judged by sums, which need no memory and only one core."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return True
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    for piece in tensor.reshape(-1).split(_ON_ONE_CORE):
        wide = piece if piece.itemsize > 1 else piece.float()
        total = wide.sum(dtype=torch.float64 if piece.dtype == torch.float64 else torch.float32)
        if not total.isfinite() and not wide.isfinite().all():
            return False
    return True
