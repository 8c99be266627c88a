"""Prevents hangs: a rank that waits in vain reports which ranks are missing, and exits.

A failed collective is one sign, and `Watchdog` explains it. The other is missing progress: a thread checks
once a second whether a step was completed; if the last one is too long ago, or another rank has opened the
health check, it answers and ends the process. First it dumps the stacks of all threads, unless a rank has
reported its own error.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import TypeVar

from castoff.trainers.configuration.config import Parallel
from castoff.trainers.distributed.errors import RanksLost, of_a_collective
from castoff.trainers.distributed.explanations import brief, missing_ranks, module_of, place_in
from castoff.trainers.distributed.failures import end
from castoff.trainers.distributed.health_check import WINDOW, RankHealthCheck
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.distributed.termination import LAST_WORDS, has_come

Item = TypeVar("Item")

_TICK = 1.0
"""The most seconds between two checks for progress."""

_LATE = 2
"""Checks without progress, after which the thread queries whether another rank waits in vain."""

_LEAVING = LAST_WORDS / 5
"""Seconds that an error may take from where it is raised to the end of the loop."""

_ASKED = 500
"""Queries per second, of all ranks together."""

_WAITING = (
    "torch.distributed",
    "torch.autograd",
    "torch.nn.parallel",
    "castoff.trainers.distributed.process_group",
    "castoff.trainers.optimization.engine",
    "castoff.trainers.data.iterable",
    "castoff.trainers.distributed.stopping",
)
"""Modules whose calls into torch wait for other ranks; autograd, because gradients are reduced in it."""


class Watchdog:
    """A context for a training loop in which no rank waits longer than `parallel.start_timeout` for the first
    step, and `parallel.timeout` for each later one.

    `step`: steps completed before. An error caused by lost ranks leaves the context as `RanksLost`, which
    names them; other errors are reported to the other ranks. With a single rank it does nothing.
    """

    def __init__(self, context: RankContext, parallel: Parallel, step: int = 0):
        self._context = context
        self._call = context.health_check()
        self._start_timeout, self._timeout = parallel.start_timeout, parallel.timeout
        self._limit = self._start_timeout
        self._started = False
        self._beats = 0
        self._doing = ""
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._watched = threading.get_ident()
        if self._call is not None:
            self._call.step = step
            self._call.window = min(WINDOW, self._timeout / 2)

    def __enter__(self) -> Watchdog:
        """Start the thread that checks for progress."""
        if self._call is not None:
            self._watched = threading.get_ident()
            self._thread = threading.Thread(target=self._watch, name="castoff-watch", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop the thread, and handle an error of the loop.

        Raises:
            RanksLost: in place of an error of a collective.
        """
        self._over.set()
        if self._thread is not None:
            self._thread.join()  # it ends the process if it has noticed the same failure
        if self._call is None or not isinstance(error, Exception) or isinstance(error, RanksLost):
            return
        if of_a_collective(error):
            raise missing_ranks(error, self._call, self._context.waits_for) from error
        self._call.ended(brief(error))

    def step_done(self, step: int) -> None:
        """Record a completed optimizer step; after the first, the limit is `parallel.timeout`."""
        self._beats += 1
        if self._call is not None:
            self._call.step = step
            if not self._started:
                self._started = True
                self._set_limit(self._timeout)

    def beat(self, doing: str = "") -> None:
        """Record progress other than a step, such as a batch of a validation; `doing`: what begins now, in
        words.
        """
        self._beats += 1
        self._doing = doing

    def each(self, batches: Iterable[Item], doing: str) -> Iterator[Item]:
        """Yield the batches, with a beat for each."""
        for batch in batches:
            self.beat(doing)
            yield batch
        self.beat()

    @contextmanager
    def allow(self, doing: str) -> Iterator[None]:
        """Allow as much time as for the first step in this context, which all ranks must enter together.

        `doing`: what the ranks do there, in words, for the message about a rank that makes no progress.
        """
        limit_before, doing_before = self._limit, self._doing
        self.beat(doing)
        self._set_limit(max(limit_before, self._start_timeout))
        try:
            yield
        finally:
            self.beat(doing_before)
            self._set_limit(limit_before)

    def _set_limit(self, seconds: float) -> None:
        self._limit = seconds
        if self._call is not None:
            self._context.set_timeout(seconds)

    def _watch(self) -> None:
        """Check for progress. Time is counted in ticks of this thread, so that time in which the process was
        suspended does not count.
        """
        assert self._call is not None
        tick = min(_TICK, self._call.window / 10)
        every = max(_LATE, round(self._call.world_size / _ASKED / tick))
        seen, quiet = -1, 0
        while not self._over.wait(tick):
            if seen != self._beats:
                seen, quiet = self._beats, 0
                continue
            quiet += 1
            if quiet * tick >= self._limit:
                self._end(self._call, [f"no progress for {self._limit:g} s; {self._field()}"])
            elif quiet % every == 0 and (self._call.is_open() or _is_ended()):
                self._end(self._call, [])

    def _end(self, call: RankHealthCheck, more: list[str]) -> None:
        """End the process in place of the stuck loop, unless an error is just leaving the loop."""
        frames = _frames(self._watched)
        if self._over.wait(_LEAVING):
            return
        waits = self._context.waits_for is not None or _is_waiting(frames)
        doing = self._context.waits_for or " ".join(filter(None, (self._doing, place_in(frames))))
        verdict = call.hold("waits" if waits else "busy", doing)
        if not verdict.is_explained:
            call.show_threads()
        end(RanksLost(verdict, self._context.rank, more), self._context, None)

    def _field(self) -> str:
        name = "timeout" if self._limit == self._timeout else "start_timeout"
        return f"parallel.{name} sets this limit, and must be longer than any step"


def _is_ended() -> bool:
    """Whether the launcher sent TERM because a rank has failed; otherwise TERM requests a stop."""
    file = os.environ.get("CASTOFF_FAILURE_FILE")
    return file is not None and has_come() and Path(file).exists()


def _frames(thread: int) -> list[FrameType]:
    """A thread's Python frames, outermost first."""
    innermost = sys._current_frames().get(thread)
    return [frame for frame, _ in traceback.walk_stack(innermost)][::-1]


def _is_waiting(frames: list[FrameType]) -> bool:
    """Whether the innermost frame is in a module that waits for other ranks."""
    return bool(frames) and any(
        module_of(frames[-1]) == name or module_of(frames[-1]).startswith(f"{name}.") for name in _WAITING
    )
