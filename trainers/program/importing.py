"""Imports of large packages, exempt from garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Disable garbage collection in this context, and exempt its objects from later collections.

    Collections take a fifth of the time of importing torch. Only for the beginning of a program: cyclic
    garbage from before is never freed.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if enabled:
            gc.enable()
