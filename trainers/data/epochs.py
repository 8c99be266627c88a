"""Calls a map-style data set's `set_epoch` in each process that reads its samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from torch.utils.data import Subset

_begun: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""The epoch last set on each data set in this process; training and validation may share a data set."""


def teller(dataset: Any) -> Callable[[int], None] | None:
    """A function that sets the data set's epoch; None: neither it nor the data set that it is a Subset of
    has `set_epoch`.
    """
    while type(dataset) is Subset and not hasattr(dataset, "set_epoch"):
        dataset = dataset.dataset
    if not callable(getattr(dataset, "set_epoch", None)):
        return None
    return lambda epoch: _tell(dataset, epoch)


def _tell(dataset: Any, epoch: int) -> None:
    try:
        if _begun.get(dataset) == epoch:
            return
        _begun[dataset] = epoch
    except TypeError:  # the data set has no hash, or allows no weak reference
        pass
    dataset.set_epoch(epoch)
