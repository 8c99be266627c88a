"""Stopping early: detects requests, lets ranks agree, and records the outcome.

Only rank 0 checks the deadline (CASTOFF_DEADLINE) and the stop file (CASTOFF_STOP_FILE), at most once a
second, and calls `look` then; a TERM, USR2 or INT signal (Ctrl-C) to any rank also requests a stop. Signal
handlers only set a flag, but a second Ctrl-C ends the process. The flag is reduced over ranks by an
all_reduce that starts in one step and is read in the next, so that no step waits for it; with quick steps,
some are skipped.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from castoff.trainers.distributed.process_group import RankContext
from castoff.trainers.distributed.termination import noticed
from castoff.trainers.files.durable import replace_file

DEFAULT_GRACE = 120.0
"""Seconds before the deadline at which training must have ended, if CASTOFF_GRACE is not set."""

AGAIN = os.EX_TEMPFAIL
"""Exit code (75) of a training that saved and can be resumed, if no CASTOFF_OUTCOME_FILE is set."""

_SIGNALS = (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT)
_STOP_FILE, _DEADLINE = "the stop file", "the deadline"
_REASONS = (_STOP_FILE, _DEADLINE, *(number.name.removeprefix("SIG") for number in _SIGNALS))
_ECHO = 0.2
"""Seconds within which a second INT counts as a copy of the first by a wrapper, such as timeout or uv run."""

Batch = TypeVar("Batch")

_LOOK_EVERY = 1.0
_MESSAGE_EVERY = 0.25
"""Seconds between two messages: if steps take a millisecond, one at each step would cost a tenth of the
time.
"""
_MOST_STEPS = 50
"""The most steps between two messages. Without a CPU group it is always this many, because reading a
message then waits for the device.
"""


class StoppedEarly(SystemExit):
    """Training ended early, on request, with everything saved.

    If it is not caught, the program exits with 0 if CASTOFF_OUTCOME_FILE is set (that file then contains
    `resume`), else with `AGAIN`.
    """

    def __init__(self, why: str):
        super().__init__(0 if os.environ.get("CASTOFF_OUTCOME_FILE") else AGAIN)
        self.why = why

    def __str__(self) -> str:
        return self.why


class StoppedInside(Exception):
    """All ranks have agreed to stop between two batches of an evaluation."""


class Stopping:
    """Decides, on all ranks together, whether to stop after a step.

    `look` is called by rank 0 at most once a second; `agreed` raises its errors.
    """

    def __init__(
        self,
        context: RankContext,
        environ: Mapping[str, str] | None = None,
        look: Callable[[], None] = lambda: None,
    ):
        environ = os.environ if environ is None else environ
        self._context = context
        self._look = look
        self._deadline = _number(environ.get("CASTOFF_DEADLINE"))
        grace = _number(environ.get("CASTOFF_GRACE"))
        self._grace = DEFAULT_GRACE if grace is None else grace
        self._file = environ.get("CASTOFF_STOP_FILE")
        # castoff's own launcher reads the outcome of the first rank on its host.
        first_here = environ.get("CASTOFF_LAUNCHER") == "local" and environ.get("LOCAL_RANK") == "0"
        self._outcome = environ.get("CASTOFF_OUTCOME_FILE") if context.is_main or first_here else None
        self._looked = float("-inf")
        self._asked: str | None = None
        self._interrupted: float | None = None  # time of the first Ctrl-C
        self._before: dict[signal.Signals, Any] = {}
        self._noticed = ExitStack()
        self._sent: tuple[dist.Work, torch.Tensor] | None = None
        self._rest = 0
        self._all_stop = False
        self._recent_step = 0.0
        self.longest_step = 0.0
        """Seconds that the longest step took."""
        self.longest_checkpoint = 0.0
        """Seconds that the longest checkpoint took, from the halt of training until it was durable."""

    def __enter__(self) -> Stopping:
        """Install the handlers: TERM, USR2 and INT request a stop."""
        if threading.current_thread() is threading.main_thread():
            # A shell ignores INT for its background jobs; keep that.
            heard = (
                one for one in _SIGNALS if one != signal.SIGINT or signal.getsignal(one) != signal.SIG_IGN
            )
            self._before = {number: signal.signal(number, self._on_signal) for number in heard}
            self._noticed.enter_context(noticed())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restore the previous signal handlers."""
        self._noticed.close()
        for number, before in self._before.items():
            signal.signal(number, before)
        if self._sent is not None and kind is None:
            self._sent[0].wait()
            self._sent = None

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            now = time.monotonic()
            if self._interrupted is not None and now - self._interrupted > _ECHO:
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)  # the shell reports exit code 130
            self._interrupted = now if self._interrupted is None else self._interrupted
        self._asked = signal.Signals(number).name.removeprefix("SIG")

    def checkpoint_took(self, seconds: float) -> None:
        """Record the seconds that a checkpoint took, from the halt of training until it was durable."""
        self.longest_checkpoint = max(self.longest_checkpoint, seconds)

    def step_took(self, seconds: float) -> None:
        """Record the seconds that a step, or a batch in `between`, took."""
        self.longest_step = max(self.longest_step, seconds)
        self._recent_step = max(self._recent_step, seconds)

    @property
    def margin(self) -> float:
        """Seconds before the deadline at which the last step may begin: this step, the steps until other
        ranks receive the request, and a durable checkpoint must end `grace` before the deadline.
        """
        hearing = max(_MESSAGE_EVERY, _MOST_STEPS * self._recent_step if self._on_device() else 0.0)
        # Twice: the last checkpoint waits for the one before, which may still be being written.
        return self._grace + hearing + 2 * self.longest_step + 2 * self.longest_checkpoint

    def _on_device(self) -> bool:
        """Whether the messages are on the accelerators, because there is no CPU group."""
        return self._context.distributed and self._context.flag_group() is None

    def asked(self) -> str | None:
        """The request to stop on this rank; None: there is none."""
        if self._asked is None and self._context.is_main:
            now = time.monotonic()
            if now - self._looked >= _LOOK_EVERY:
                self._looked = now
                self._look()
                if self._file and Path(self._file).exists():
                    self._asked = _STOP_FILE
                elif self._deadline is not None and time.time() + self.margin >= self._deadline:
                    self._asked = _DEADLINE
        return self._asked

    def reason(self) -> str:
        """The request that stops all ranks, and its rank if not 0; all ranks must call it."""
        mine = self.asked()
        code = 0 if mine is None else 1 + _REASONS.index(mine)
        codes: list[int] = self._context.gather(torch.tensor(code)).tolist()
        for rank, code in enumerate(codes):
            if code:
                return _REASONS[code - 1] + (f" to rank {rank}" if rank else "")
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

    def record_outcome(self, outcome: str) -> None:
        """Write the outcome, `done` or `resume`, to the file that the job script reads; rank 0 writes."""
        if self._outcome:
            replace_file(Path(self._outcome), f"{outcome}\n".encode())


def _number(text: str | None) -> float | None:
    return float(text) if text else None
