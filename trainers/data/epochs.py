"""Tells a data set with a length which epoch its samples are for, in whichever process reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from torch.utils.data import Subset

_begun: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
"""The epoch that each set was set to last in this process: training and validation may share one."""


def teller(dataset: Any) -> Callable[[int], None] | None:
    """The function that sets its epoch; None if neither it nor the set that it is part of has `set_epoch`."""
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
    except TypeError:  # it has no hash, or nothing can refer to it weakly
        pass
    dataset.set_epoch(epoch)
