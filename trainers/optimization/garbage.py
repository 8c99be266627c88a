"""Collects Python's garbage on all ranks in the same step, since one rank's collection delays all."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def collected_together(every: int | None) -> Iterator[Callable[[int], None]]:
    """Yield a function of the step that collects garbage if `every` divides it; None: Python collects."""
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
