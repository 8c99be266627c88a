"""Numbers that two ways of computing give, which may differ by their rounding and by nothing else."""

from __future__ import annotations

import torch
from torch import Tensor


def assert_rounded(found: Tensor, expected: Tensor, roundings: int = 64) -> None:
    """They differ by no more than so many roundings of the largest value, in the coarser of the two types.

    Which operations are fused, and in what order sums are made, is the processor's and torch's affair; what a
    sum rounds grows with the largest of its terms.
    """
    step = max(torch.finfo(each.dtype).eps for each in (found, expected))
    largest = float(expected.abs().max()) if expected.numel() else 0.0
    bound = roundings * step * largest
    torch.testing.assert_close(found.double(), expected.double(), rtol=0, atol=bound)
