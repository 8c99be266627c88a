"""Collects Python's garbage on all ranks in the same step, since a rank that collects delays all."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def collected_together(every: int | None) -> Iterator[Callable[[int], None]]:
    """Gives a function of the step that collects when `every` divides it; None: leaves it to Python."""
    if every is None or not gc.isenabled():
        yield lambda step: None
        return

    def after(step: int) -> None:
        if step % every == 0:
            gc.collect(1)

    gc.collect()
    gc.disable()
    try:
        yield after
    finally:
        gc.enable()
