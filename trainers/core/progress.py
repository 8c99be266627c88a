"""A bar on the terminal of rank 0; nothing where nobody watches."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trainers.core.distributed import Place

_REDRAW_EVERY = 0.1
"""Seconds."""


@contextmanager
def progress(place: Place, what: str, total: int | None, done: int = 0) -> Iterator[Callable[[], None]]:
    """Shows how much of `total` steps is done; calling what it gives tells that one more is."""
    if not (place.is_main and sys.stderr.isatty()):
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import Progress

    # Drawn by hand: a thread that draws would be forked into the loaders' workers.
    bar = Progress(console=Console(stderr=True), auto_refresh=False, transient=True)
    task = bar.add_task(what, total=total, completed=done)
    drawn = 0.0

    def step() -> None:
        nonlocal drawn
        bar.advance(task)
        if time.monotonic() - drawn > _REDRAW_EVERY:
            drawn = time.monotonic()
            bar.refresh()

    with bar:
        yield step
