"""Imports of large packages, exempt from garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect no garbage in this block, and leave out in later collections whatever is there at its end.

    Collecting takes a fifth of the time in which torch is imported. For the beginning of a program: of what
    it has made before, nothing that refers to itself is ever freed.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if enabled:
            gc.enable()
