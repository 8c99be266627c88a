"""Requests to stop early: the deadline, the stop file and signals, and the outcome that answers them.

Nothing here needs torch, so a program of any framework can use it. Signal handlers only set a flag, but a
second Ctrl-C ends the process.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

from castoff.trainers.distributed.termination import noticed
from castoff.trainers.files.durable import replace_file

DEFAULT_GRACE = 120.0
"""Seconds before the deadline at which training must have ended, if CASTOFF_GRACE is not set."""

AGAIN = os.EX_TEMPFAIL
"""Exit code (75) of a training that saved and can be resumed, if no CASTOFF_OUTCOME_FILE is set."""

_SIGNALS = (signal.SIGTERM, signal.SIGUSR2, signal.SIGINT)
STOP_FILE, DEADLINE = "the stop file", "the deadline"
REASONS = (STOP_FILE, DEADLINE, *(number.name.removeprefix("SIG") for number in _SIGNALS))
"""Every request, in words."""
_ECHO = 0.2
"""Seconds within which a second INT counts as a copy of the first by a wrapper, such as timeout or uv run."""

_LOOK_EVERY = 1.0


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


class Requests:
    """Requests to stop that reach this process.

    Only rank 0 (`is_main`) checks the deadline (CASTOFF_DEADLINE) and the stop file (CASTOFF_STOP_FILE), at
    most once a second, and calls `look` then; a TERM, USR2 or INT signal (Ctrl-C) to any rank is a request,
    too.
    """

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        look: Callable[[], None] = lambda: None,
        *,
        is_main: bool = True,
    ):
        environ = os.environ if environ is None else environ
        self._is_main = is_main
        self._look = look
        self._deadline = _number(environ.get("CASTOFF_DEADLINE"))
        grace = _number(environ.get("CASTOFF_GRACE"))
        self._grace = DEFAULT_GRACE if grace is None else grace
        self._file = environ.get("CASTOFF_STOP_FILE")
        # castoff's own launcher reads the outcome of the first rank on its host.
        first_here = environ.get("CASTOFF_LAUNCHER") == "local" and environ.get("LOCAL_RANK") == "0"
        self._outcome = environ.get("CASTOFF_OUTCOME_FILE") if is_main or first_here else None
        self._looked = float("-inf")
        self._asked: str | None = None
        self._interrupted: float | None = None  # time of the first Ctrl-C
        self._before: dict[signal.Signals, Any] = {}
        self._noticed = ExitStack()
        self.longest_step = 0.0
        """Seconds that the longest step took."""
        self.longest_checkpoint = 0.0
        """Seconds that the longest checkpoint took, from the halt of training until it was durable."""

    def listen(self) -> None:
        """Install the handlers, until `close`: TERM, USR2 and INT request a stop."""
        if threading.current_thread() is threading.main_thread():
            # A shell ignores INT for its background jobs; keep that.
            heard = (
                one for one in _SIGNALS if one != signal.SIGINT or signal.getsignal(one) != signal.SIG_IGN
            )
            self._before = {number: signal.signal(number, self._on_signal) for number in heard}
            self._noticed.enter_context(noticed())

    def close(self) -> None:
        """Restore the previous signal handlers."""
        self._noticed.close()
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before = {}

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
        """Record the seconds that a step took."""
        self.longest_step = max(self.longest_step, seconds)

    @property
    def margin(self) -> float:
        """Seconds before the deadline at which the last step may begin: this step and a durable checkpoint
        must end `grace` before the deadline.
        """
        # Twice: the last checkpoint waits for the one before, which may still be being written.
        return self._grace + 2 * self.longest_step + 2 * self.longest_checkpoint

    def asked(self) -> str | None:
        """The request to stop on this rank; None: there is none."""
        if self._asked is None and self._is_main:
            now = time.monotonic()
            if now - self._looked >= _LOOK_EVERY:
                self._looked = now
                self._look()
                if self._file and Path(self._file).exists():
                    self._asked = STOP_FILE
                elif self._deadline is not None and time.time() + self.margin >= self._deadline:
                    self._asked = DEADLINE
        return self._asked

    def record_outcome(self, outcome: str) -> None:
        """Write the outcome, `done` or `resume`, to the file that the job script reads; rank 0 writes."""
        if self._outcome:
            replace_file(Path(self._outcome), f"{outcome}\n".encode())


def _number(text: str | None) -> float | None:
    return float(text) if text else None
