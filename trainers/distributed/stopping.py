"""Stopping early: who asks for it, how ranks agree, and what they report.

Rank 0 alone looks at the deadline (CASTOFF_DEADLINE) and the stop file (CASTOFF_STOP_FILE), at most once a
second, and calls `look` then; a TERM, USR2 or INT signal (Ctrl-C) to any rank also requests a stop.
Handlers set a flag and nothing else, but for a second Ctrl-C, which ends the process. The flag is reduced
over the ranks by a message that is sent in one step and read in the next, so no step waits for it; quick
steps go without.
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
"""Seconds before the deadline at which training is to be over, where CASTOFF_GRACE does not say."""

AGAIN = os.EX_TEMPFAIL
"""Exit code (75) of what has saved and can be resumed, where no script asks for the outcome in a file."""

_SIGNALS = (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT)
_STOP_FILE, _DEADLINE = "the stop file", "the deadline"
_REASONS = (_STOP_FILE, _DEADLINE, *(number.name.removeprefix("SIG") for number in _SIGNALS))
_ECHO = 0.2
"""Seconds within which a second Ctrl-C is a wrapper's copy of the first (timeout, uv run)."""

Batch = TypeVar("Batch")

_LOOK_EVERY = 1.0
_MESSAGE_EVERY = 0.25
"""Seconds between two messages: a step of a millisecond would spend a tenth of its time on one."""
_MOST_STEPS = 50
"""Steps between two messages at most; and always where no CPU group carries them, because reading one
waits for the device then."""


class StoppedEarly(SystemExit):
    """Training ended early, on request, with everything saved.

    If nobody catches it the program exits with 0 where CASTOFF_OUTCOME_FILE names a file, in which
    `resume` stands then, and with `AGAIN` elsewhere.
    """

    def __init__(self, why: str):
        super().__init__(0 if os.environ.get("CASTOFF_OUTCOME_FILE") else AGAIN)
        self.why = why

    def __str__(self) -> str:
        return self.why


class StoppedInside(Exception):
    """All ranks have agreed to stop, between two batches of something that is not training."""


class Stopping:
    """Whether the ranks, together, should stop at this step boundary.

    `look`: what else rank 0 does at most once a second; its errors leave `agreed`.
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
        # castoff's own launcher sees one host alone, and asks there.
        first_here = environ.get("CASTOFF_LAUNCHER") == "local" and environ.get("LOCAL_RANK") == "0"
        self._outcome = environ.get("CASTOFF_OUTCOME_FILE") if context.is_main or first_here else None
        self._looked = float("-inf")
        self._asked: str | None = None
        self._interrupted: float | None = None  # when the first Ctrl-C came
        self._before: dict[signal.Signals, Any] = {}
        self._noticed = ExitStack()
        self._sent: tuple[dist.Work, torch.Tensor] | None = None
        self._rest = 0
        self._all_stop = False
        self._recent_step = 0.0
        self.longest_step = 0.0
        """Seconds."""
        self.longest_checkpoint = 0.0
        """Seconds, from the moment that training halts for it until it is durable."""

    def __enter__(self) -> Stopping:
        """From here on TERM, USR2 and INT ask for a stop."""
        if threading.current_thread() is threading.main_thread():
            # A shell's background job has INT ignored, and nobody means it then.
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
        """They mean what they meant before."""
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
                signal.raise_signal(number)  # for a shell, code 130
            self._interrupted = now if self._interrupted is None else self._interrupted
        self._asked = signal.Signals(number).name.removeprefix("SIG")

    def checkpoint_took(self, seconds: float) -> None:
        """How long one took, from the moment that training halted for it until it was durable."""
        self.longest_checkpoint = max(self.longest_checkpoint, seconds)

    def step_took(self, seconds: float) -> None:
        """How long the step, or the batch of `between`, that is over was; the next may be as long."""
        self.longest_step = max(self.longest_step, seconds)
        self._recent_step = max(self._recent_step, seconds)

    @property
    def margin(self) -> float:
        """Seconds before the deadline at which the last step may begin: it, the steps until the
        others hear of it, and the checkpoint, durable, must end `grace` before the deadline.
        """
        hearing = max(_MESSAGE_EVERY, _MOST_STEPS * self._recent_step if self._on_device() else 0.0)
        # The last checkpoint waits for the one before, which may be on its way to the disk.
        return self._grace + hearing + 2 * self.longest_step + 2 * self.longest_checkpoint

    def _on_device(self) -> bool:
        """Whether the accelerators carry the messages, for want of a CPU group."""
        return self._context.distributed and self._context.flag_group() is None

    def asked(self) -> str | None:
        """Why this rank would stop; None while it would not."""
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
        """Why all ranks stop, and to which rank the request came if not to rank 0; all of them must ask."""
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
        given = torch.tensor(
            [float(mine), self._recent_step], device=None if group is not None else self._context.device
        )
        work = dist.all_reduce(given, op=dist.ReduceOp.MAX, group=group, async_op=True)
        assert work is not None  # async_op
        self._sent = (work, given)
        self._recent_step = 0.0
        if group is None:
            self._rest = _MOST_STEPS - 1
        return False

    def _hear(self) -> None:
        """Take in the message on its way: whether all stop, and how many steps may go without one."""
        if self._sent is None:
            return
        work, given = self._sent
        self._sent = None
        work.wait()
        asked, step = given.tolist()
        self._all_stop = self._all_stop or bool(asked)
        if self._context.flag_group() is not None:  # every rank counts alike, by the slowest one's steps
            self._rest = min(int(_MESSAGE_EVERY / step), _MOST_STEPS) if step else 0

    def _change_pace(self) -> None:
        """Agree at the next step, because steps may be much slower from here on."""
        self._hear()
        self._rest, self._recent_step = 0, 0.0

    def between(self, batches: Iterable[Batch], rounds: int) -> Iterator[Batch]:
        """This rank's batches, with a look at whether to stop before each; every rank must use it up.

        `rounds` is the same on all ranks: the most batches that any of them has. A rank that has fewer
        agrees with the others all the same. Nothing else that ranks do together may depend on whether
        a rank has a batch.

        Raises:
            StoppedInside: on all ranks in the same round, the next but one after that in which
                somebody asked; where batches are quick, after those that go without a message.
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
        """Rank 0 tells the job script how it ended: `done`, or `resume`."""
        if self._outcome:
            replace_file(Path(self._outcome), f"{outcome}\n".encode())


def _number(text: str | None) -> float | None:
    return float(text) if text else None
