"""Finds where a step's numbers are not finite, for a message."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.optimization.local import local_gradients


class NotFinite(NamedTuple):
    """What is not finite, as parts of a sentence."""

    where: str
    """Such as `the loss of rank 1 is`."""
    gradients: str
    """Names of parameters."""


def found_not_finite(losses: list[Tensor], model: nn.Module, context: RankContext) -> NotFinite:
    """What is not finite on any rank: losses, and gradients of the model; all ranks must call it."""
    mine = all(bool(torch.isfinite(loss).all()) for loss in losses)
    fine = context.gather(torch.tensor([float(mine)])).flatten().tolist()
    bad = [str(rank) for rank, is_fine in enumerate(fine) if not is_fine]
    where = (
        f"the loss of rank {', '.join(bad[:8])} is" if bad else "all losses are finite, but the gradient is"
    )
    graded = [(name, each) for name, each in model.named_parameters() if each.grad is not None]
    wrong = [float(not torch.isfinite(each).all()) for each in local_gradients(each for _, each in graded)]
    anywhere = context.sum(torch.tensor(wrong)).tolist()
    named = [name for (name, _), number in zip(graded, anywhere, strict=True) if number]
    some = f"{', '.join(named[:3])}{f' and {len(named) - 3} more' if len(named) > 3 else ''}"
    return NotFinite(where, some or "none now")
