"""A progress bar on the terminal for long work on data."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

_REDRAW_EVERY = 0.1
"""Seconds between two updates of the bar."""


class Bar:
    """A progress bar for one step of the work after the other; hidden if standard error is not a terminal."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._drawn = 0.0

    def __enter__(self) -> Bar:
        if sys.stderr is not None and sys.stderr.isatty():  # None: closed
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

            # Without auto_refresh, whose thread would still exist when a training forks.
            self._progress = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TimeRemainingColumn(),
                console=Console(stderr=True),
                auto_refresh=False,
                transient=True,
            )
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def begin(self, what: str, total: int) -> None:
        """Begin a step of the work, of `total` units."""
        if self._progress is not None:
            for task in self._progress.task_ids:
                self._progress.remove_task(task)
            self._progress.add_task(what, total=total)
            self._progress.refresh()

    def at(self, done: int) -> None:
        """Show that `done` units of the step are done."""
        now = time.monotonic()
        if self._progress is not None and now - self._drawn > _REDRAW_EVERY:
            self._drawn = now
            self._progress.update(self._progress.task_ids[0], completed=done)
            self._progress.refresh()
