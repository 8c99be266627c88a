"""How a resumable function stops early: its `checkpoint` is called, and the ranks exit.

submitit has the signal before the walltime reach every rank, and calls `checkpoint` and `scontrol requeue`
in its handler. Here the job script is asked, and it alone starts a job again. So:

- The file CASTOFF_STOP_FILE appears. A thread of rank 0 looks for it once a second, and then sends a
  signal to its own main thread. `checkpoint` runs there, while the call is interrupted: as submitit has
  it, in the thread where the call runs and before anything of the call is undone.
- What it returns takes the place of the function in the run directory; CASTOFF_OUTCOME_FILE says `resume`.
- The file `leaving` tells the other ranks to exit, all with 0 and at the same moment: one that went first
  would fail the others in what they do together. Then the script decides.

A call that waits in C code is interrupted when that returns. Signals from outside do nothing but make the
stop file.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import cloudpickle
from submitit.core import logger
from submitit.core.utils import DelayedSubmission, UncompletedJobError

from castoff.launcher.process import files
from castoff.launcher.ranks import RankEnv

_LOOK_EVERY = 1.0
_LOOKS_PER_SECOND = 256
"""How often all ranks together ask the file system, however many they are."""

_UNWINDING = 10.0
"""Seconds that a job of one rank has to leave its `finally` and `with` blocks."""


def can_resume(function: Callable[..., Any]) -> bool:
    """Whether a function can be resumed, as submitit's Checkpointable can."""
    return hasattr(function, "checkpoint") or hasattr(function, "__submitit_checkpoint__")


def request_resume(outcome: Path) -> None:
    """Ask for the job to be resumed; its script decides whether and when."""
    files.replace(outcome, "resume\n")


class Stopping:
    """Handles an early stop in one rank."""

    def __init__(self, submission: DelayedSubmission, pickle: Path, number: signal.Signals):
        """`pickle`: the file of the submission. `number`: the signal that asks for a stop."""
        self._submission = submission
        self._pickle = pickle
        self._signal = number
        self._place = RankEnv.detect()
        self._stop = Path(os.environ["CASTOFF_STOP_FILE"])
        self._outcome = Path(os.environ["CASTOFF_OUTCOME_FILE"])
        self._leaving = Path(os.environ["CASTOFF_ATTEMPT_DIR"]) / "leaving"
        self._look_every = max(_LOOK_EVERY, self._place.world_size / _LOOKS_PER_SECOND)
        self._over = threading.Event()
        """Set once the function has returned."""
        self._due = False
        self._forking = threading.local()
        """The signals that a thread had blocked before it forked."""

    def begin(self) -> None:
        """Begin to notice requests to stop. Call it in the main thread."""
        signals = [self._signal]
        if can_resume(self._submission.function):
            signals.append(signal.SIGTERM)  # it may save what it has; others end, as programs do
            call = self._submission.result
            self._submission.result = functools.partial(self._result, call)  # type: ignore[method-assign]
            look = self._look_for_stop if self._place.rank == 0 else self._look_for_word
            threading.Thread(target=look, name="castoff-stop", daemon=True).start()
        for asked in signals:
            signal.signal(asked, self._on_signal)
        # A data loader ends its forked workers by TERM: that must not stop the job.
        os.register_at_fork(before=self._hold, after_in_parent=self._let_go, after_in_child=self._forget)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._due and number == self._signal:
            self._due = False
            if not self._over.is_set():
                self._checkpoint()
            return
        with contextlib.suppress(OSError):  # nothing more can be done, and the call continues
            self._stop.touch(mode=0o600)

    def _hold(self) -> None:
        self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, self._signal})

    def _let_go(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._forking.mask)

    def _forget(self) -> None:
        """In a forked child: forget signals that were sent to the parent."""
        for number, action in ((signal.SIGTERM, signal.SIG_DFL), (self._signal, signal.SIG_IGN)):
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, action)
        self._let_go()

    def _result(self, call: Callable[[], Any]) -> Any:
        """The function's result, unless it failed only because the other ranks left."""
        try:
            return call()
        except Exception:
            if self._place.rank and (moment := self._moment()):
                _leave_at(moment)
            raise
        finally:
            self._over.set()

    # Rank 0

    def _look_for_stop(self) -> None:
        while not self._over.wait(self._look_every):
            if os.path.exists(self._stop):  # noqa: PTH110 - a file system that does not answer is asked again
                self._due = True
                main = threading.main_thread().ident
                assert main is not None  # it runs
                signal.pthread_kill(main, self._signal)  # which also wakes it up
                return

    def _checkpoint(self) -> None:
        """Call `checkpoint`, ask to be resumed, tell the other ranks, and exit."""
        log = logger.get_logger()
        log.info("asked to stop: calling checkpoint()")
        following = self._submission._checkpoint_function()
        if following is None:
            raise UncompletedJobError("asked to stop, but checkpoint() returned None: it cannot be resumed")
        with files.replacing(self._pickle) as file:
            cloudpickle.dump(following, file)
        request_resume(self._outcome)
        log.info("saved; the script decides when this resumes")
        if self._place.world_size == 1:
            timer = threading.Timer(_UNWINDING, os._exit, [0])
            timer.daemon = True
            timer.start()
            raise SystemExit(0)
        at = time.time() + 2 * self._look_every + 1
        files.replace(self._leaving, f"{at}\n")
        _leave_at(at)

    # The other ranks

    def _look_for_word(self) -> None:
        while not self._over.wait(self._look_every):
            if moment := self._moment():
                _leave_at(moment)

    def _moment(self) -> float | None:
        """The time at which to exit, once rank 0 has announced it. Network file systems do not cache this
        query."""
        try:
            descriptor = os.open(self._leaving, os.O_RDONLY | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, encoding="utf-8") as file:
                return float(file.read() or 0) or None
        except OSError:  # as on a full disk; it is asked again
            return None


def _leave_at(moment: float) -> None:
    """Exit at this time, whatever the function and its threads are doing: the next attempt starts afresh."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    time.sleep(max(0.0, moment - time.time()))
    os._exit(0)
