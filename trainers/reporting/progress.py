"""A training's progress: a line in the log, and a bar on rank 0's terminal."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.reporting.throughput import TIMED

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

_REDRAW_EVERY = 0.1
"""Seconds between two updates of the bar."""
_NOTEWORTHY = 0.1
"""The fraction of a step's time above which the log reports a delay."""


class Progress:
    """Counts steps, and estimates the time left.

    `total`: steps of the whole training, None if unknown; `epochs`: None if `num_steps` sets its length.
    `done` steps and `epoch` epochs were completed before.
    """

    def __init__(
        self,
        context: RankContext,
        *,
        total: int | None,
        epochs: int | None = None,
        done: int = 0,
        epoch: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._context = context
        self._total = total
        self._epochs = epochs
        self._done = done
        self._epoch = epoch
        self._clock = clock
        self._first: tuple[int, float] | None = None
        """(step, time) at the end of this process's first step, which took longest and is not counted."""
        self._now = 0.0
        self._bar: Bar | None = None
        self._drawn = 0.0
        self._borrowed: list[logging.StreamHandler[Any]] = []

    def __enter__(self) -> Progress:
        """Show the bar if standard error is a terminal."""
        if self._context.is_main and sys.stderr is not None and sys.stderr.isatty():  # None: closed
            self._show()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the bar."""
        if self._bar is None:
            return
        self._bar.stop()
        for handler in self._borrowed:
            handler.setStream(sys.stderr)
        self._bar, self._borrowed = None, []

    def step(self, done: int, epoch: int) -> None:
        """Record the number of completed steps and epochs."""
        self._done, self._epoch = done, epoch
        self._now = self._clock()
        if self._first is None:
            self._first = (done, self._now)
        if self._bar is not None and self._now - self._drawn > _REDRAW_EVERY:
            self._drawn = self._now
            self._bar.update(self._bar.task_ids[0], completed=done, **self._words())
            self._bar.refresh()

    def left(self) -> float | None:
        """Seconds left, at the average speed so far, pauses included; None: unknown."""
        if self._total is None or self._first is None or self._done <= self._first[0]:
            return None
        per_step = (self._now - self._first[1]) / (self._done - self._first[0])
        return per_step * max(self._total - self._done, 0)

    def line(self, values: Mapping[str, float]) -> str:
        """A line for the log: the step and epoch, the metrics named train/…, and the time left."""
        words = [f"{name} {value:.4g}" for name, value in _own(values).items()]
        speed = values.get("train/samples_per_second")
        if speed is not None:
            words.append(f"{speed:,.0f} samples/s" if speed >= 10 else f"{speed:.2g} samples/s")
        words += _noteworthy(values)
        left = self.left()
        if left is not None:
            words.append(f"{duration_words(left)} left")
        of = f" of {self._total:,}" if self._total is not None and self._epochs is None else ""
        return f"step {self._done:,}{of} ({self._which()}): {', '.join(words)}"

    def _which(self) -> str:
        if self._epochs is None:
            return f"epoch {self._epoch + 1}"
        return f"epoch {min(self._epoch + 1, self._epochs)} of {self._epochs}"

    def _words(self) -> dict[str, Any]:
        left = self.left()
        return {"description": self._which(), "left": "" if left is None else f"{duration_words(left)} left"}

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        # No auto_refresh: its thread would run while loaders fork their workers.
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
        )
        self._bar.add_task(total=self._total, completed=self._done, **self._words())
        terminal = sys.stderr
        self._bar.start()
        for handler in (*logging.getLogger().handlers, *logging.getLogger("castoff.trainers").handlers):
            if isinstance(handler, logging.StreamHandler) and handler.stream is terminal:
                handler.setStream(sys.stderr)  # replaced by rich, which writes above the bar
                self._borrowed.append(handler)


def duration_words(seconds: float) -> str:
    """A duration in one or two units: 45 s, 12 min, 3 h 20 min, 2 d 4 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def _own(values: Mapping[str, float]) -> dict[str, float]:
    """The task's metrics and the learning rate, without times and memory."""
    named = {
        name.removeprefix("train/"): value for name, value in values.items() if name.startswith("train/")
    }
    return {name: value for name, value in named.items() if name not in TIMED}


def _noteworthy(values: Mapping[str, float]) -> list[str]:
    """How well the devices are used, if asked, and delays worth reporting: for data, and by a slow rank."""
    used = values.get("train/mfu")
    words = [] if used is None else [f"MFU {used:.1%}"]
    waited = values.get("train/data_wait", 0.0)
    if waited > _NOTEWORTHY:
        words.append(f"waiting for data {waited:.0%} of the time")
    lag = values.get("train/slowest_rank_lag", 0.0)
    if lag > _NOTEWORTHY:
        words.append(f"rank {values['train/slowest_rank']:.0f} slower by {lag:.0%}")
    return words
