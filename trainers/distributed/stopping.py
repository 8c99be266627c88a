"""Stopping early: ranks agree to stop in the same step.

The request of any rank, or rank 0's, is reduced over ranks by an all_reduce that starts in one step and is
read in the next, so that no step waits for it; with quick steps, some are skipped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from types import TracebackType
from typing import TypeVar

import torch
import torch.distributed as dist

from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.distributed.requests import AGAIN, DEFAULT_GRACE, REASONS, Requests, StoppedEarly

__all__ = ["AGAIN", "DEFAULT_GRACE", "StoppedEarly", "StoppedInside", "Stopping"]

Batch = TypeVar("Batch")

_MESSAGE_EVERY = 0.25
"""Seconds between two messages: if steps take a millisecond, one at each step would cost a tenth of the
time.
"""
_MOST_STEPS = 50
"""The most steps between two messages. Without a CPU group it is always this many, because reading a
message then waits for the device.
"""


class StoppedInside(Exception):
    """All ranks have agreed to stop between two batches of an evaluation."""


class Stopping(Requests):
    """Decides, on all ranks together, whether to stop after a step.

    `look` is called by rank 0 at most once a second; `agreed` raises its errors.
    """

    def __init__(
        self,
        context: RankContext,
        environ: Mapping[str, str] | None = None,
        look: Callable[[], None] = lambda: None,
    ):
        super().__init__(environ, look, is_main=context.is_main)
        self._context = context
        self._sent: tuple[dist.Work, torch.Tensor] | None = None
        self._rest = 0
        self._all_stop = False
        self._recent_step = 0.0

    def __enter__(self) -> Stopping:
        """Install the handlers: TERM, USR2 and INT request a stop."""
        self.listen()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restore the previous signal handlers."""
        self.close()
        if self._sent is not None and kind is None:
            self._sent[0].wait()
            self._sent = None

    def step_took(self, seconds: float) -> None:
        """Record the seconds that a step, or a batch in `between`, took."""
        super().step_took(seconds)
        self._recent_step = max(self._recent_step, seconds)

    @property
    def margin(self) -> float:
        """Seconds before the deadline at which the last step may begin: this step, the steps until other
        ranks receive the request, and a durable checkpoint must end `grace` before the deadline.
        """
        hearing = max(_MESSAGE_EVERY, _MOST_STEPS * self._recent_step if self._on_device() else 0.0)
        return super().margin + hearing

    def _on_device(self) -> bool:
        """Whether the messages are on the accelerators, because there is no CPU group."""
        return self._context.distributed and self._context.flag_group() is None

    def reason(self) -> str:
        """The request that stops all ranks, and its rank if not 0; all ranks must call it."""
        mine = self.asked()
        code = 0 if mine is None else 1 + REASONS.index(mine)
        codes: list[int] = self._context.gather(torch.tensor(code)).tolist()
        for rank, code in enumerate(codes):
            if code:
                return REASONS[code - 1] + (f" to rank {rank}" if rank else "")
        return "no rank was asked"

    def agreed(self) -> bool:
        """Whether all ranks stop now. Call it at every step boundary, on every rank."""
        if self._rest > 0:
            self._rest -= 1
            return False
        mine = self.asked() is not None
        if self._context.world_size == 1 or not self._context.distributed:
            return mine
        self._hear()
        if self._all_stop or self._rest > 0:
            return self._all_stop
        group = self._context.flag_group()
        message = torch.tensor(
            [float(mine), self._recent_step], device=None if group is not None else self._context.device
        )
        work = dist.all_reduce(message, op=dist.ReduceOp.MAX, group=group, async_op=True)
        assert work is not None  # async_op
        self._sent = (work, message)
        self._recent_step = 0.0
        if group is None:
            self._rest = _MOST_STEPS - 1
        return False

    def _hear(self) -> None:
        """Read the pending message: whether all ranks stop, and how many steps need no message."""
        if self._sent is None:
            return
        work, message = self._sent
        self._sent = None
        work.wait()
        asked, step = message.tolist()
        self._all_stop = self._all_stop or bool(asked)
        if self._context.flag_group() is not None:  # the same on every rank, from the slowest rank's step
            self._rest = min(int(_MESSAGE_EVERY / step), _MOST_STEPS) if step else 0

    def _change_pace(self) -> None:
        """Exchange a message at the next step, because steps may now be much slower."""
        self._hear()
        self._rest, self._recent_step = 0, 0.0

    def between(self, batches: Iterable[Batch], rounds: int) -> Iterator[Batch]:
        """Yield this rank's batches, checking before each whether to stop; every rank must exhaust it.

        `rounds` is the largest number of batches of any rank. A rank with fewer batches still takes part in
        each round. No other communication may depend on whether a rank has a batch.

        Raises:
            StoppedInside: on all ranks in the same round, two rounds after the request, or later if batches
                are quick.
        """
        self._change_pace()
        iterator = iter(batches)
        for _ in range(rounds):
            if self.agreed():
                raise StoppedInside
            began = time.perf_counter()
            yield from islice(iterator, 1)
            self.step_took(time.perf_counter() - began)
        self._change_pace()
