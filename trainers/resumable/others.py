"""What the callbacks for other trainers share: when to stop, and the outcome."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn

from castoff.trainers.distributed.attempt import Attempt
from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.distributed.requests import StoppedEarly
from castoff.trainers.distributed.stacks import write_stacks_on_request
from castoff.trainers.distributed.stopping import Stopping
from castoff.trainers.program.logs import show_trainers
from castoff.trainers.resumable.folder import Held

logger = logging.getLogger(__name__)


class Watched:
    """Another trainer's training, from its beginning to its end or to a stop; every rank has one.

    `step`: its completed optimizer steps.
    """

    def __init__(self, folder: Path, context: RankContext, step: Callable[[], int]):
        self.context = context
        self._folder = folder
        self._step = step
        self._attempt = Attempt()
        self._held: Held | None = None  # on rank 0
        show_trainers(context.rank)
        write_stacks_on_request(context.rank)
        context.on_main(self._hold)
        self._ends = ExitStack()
        self._stopping = self._ends.enter_context(Stopping(context, look=self._look))
        self._last: float | None = None

    def asks_to_stop(self) -> bool:
        """Whether all ranks stop now; all must call it after each step."""
        now = time.perf_counter()
        if self._last is not None:
            self._stopping.step_took(now - self._last)
        self._last = now
        return self._stopping.agreed()

    def saved(self, write: Callable[[], None], seconds: float) -> None:
        """Call `write` on rank 0 to complete a checkpoint on whose files all ranks spent `seconds`; its
        errors are raised on all ranks.
        """
        began = time.perf_counter()
        self.context.barrier("a checkpoint")  # each rank may write files of its own
        self.context.on_main(lambda: self._complete(write))
        self._stopping.checkpoint_took(seconds + time.perf_counter() - began)
        self._last = None

    def stop(self) -> NoReturn:
        """Record that the training stops early, and can be resumed; all ranks must call it.

        Raises:
            StoppedEarly: always.
        """
        why = self._stopping.reason()
        self._end("resume")
        step = self._step()
        if self.context.is_main:
            words = "Stopped early at step %d (%s); it can be resumed from %s"
            logger.warning(words, step, why, self._folder)
        raise StoppedEarly(f"stopped early at step {step}: {why}")

    def done(self) -> None:
        """Record that the training is complete; all ranks must call it."""
        self._end("done")

    def close(self) -> None:
        """Restore the previous signal handlers, after an error."""
        self._stopping.close()

    def _end(self, outcome: str) -> None:
        self._ends.close()
        self._stopping.record_outcome(outcome)
        self.context.barrier(outcome)

    def _hold(self) -> None:
        self._held = Held(self._folder, self._attempt)

    def _look(self) -> None:
        assert self._held is not None  # on rank 0
        self._held.check()
        self._attempt.record_progress(self._step())

    def _complete(self, write: Callable[[], None]) -> None:
        assert self._held is not None  # on rank 0
        self._held.check()
        write()
        self._attempt.record_progress(self._step())
