"""Splits a data set into parts, the same on every rank."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

from torch.utils.data import Dataset, Subset

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.distributed.permutation import Permutation
from castoff.trainers.distributed.randomness import SPLIT, derived


def split(dataset: Dataset[Any], fractions: Sequence[float], seed: int) -> list[Subset[Any]]:
    """Split a data set at random into disjoint parts, the same on every rank.

    The first part gets the samples left over by rounding. `indices` are computed on demand and take no
    memory.

    Raises:
        ConfigError: the fractions are negative or add up to more than 1.
    """
    if min(fractions) < 0 or sum(fractions) > 1 + 1e-9:
        raise ConfigError(
            [f"data.split: is {list(fractions)}, but takes fractions of at least 0 that add up to 1"]
        )
    total = len(dataset)  # type: ignore[arg-type]  # map-style sets have a length
    sizes = [int(total * fraction + 1e-9) for fraction in fractions]
    if abs(sum(fractions) - 1) < 1e-9:
        sizes[0] += total - sum(sizes)
    order = Permutation(total, derived(SPLIT, seed))
    return [Subset(dataset, order[slice(*ends)]) for ends in pairwise(accumulate(sizes, initial=0))]
