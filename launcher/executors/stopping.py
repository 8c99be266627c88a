"""Stop a resumable function early: call its `checkpoint`, and exit all ranks.

submitit sends the signal before the walltime to every rank, whose handler calls `checkpoint` and
`scontrol requeue`. With castoff, only the job script starts a job again. So:

- The file CASTOFF_STOP_FILE appears. A thread of rank 0 looks for it about once a second, and then sends a
  signal to its main thread, which interrupts the function and runs `checkpoint`: as with submitit, in the
  function's thread and before its `finally` blocks.
- The function that `checkpoint` returns replaces the one in the run directory, and CASTOFF_OUTCOME_FILE gets
  `resume`.
- The file `leaving` tells the other ranks when to exit. All exit with code 0 at the same time, since the
  others would fail in collective operations if one exited first. Then the script decides.

A function that waits in C code is interrupted when that returns. A signal from another process only creates
the stop file.
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
"""Limit of all ranks' file system queries per second, whatever their number."""

_UNWINDING = 10.0
"""Limit in seconds for the `finally` and `with` blocks of a job of one rank."""


def can_resume(function: Callable[..., Any]) -> bool:
    """Whether a function can be resumed, like submitit's Checkpointable."""
    return hasattr(function, "checkpoint") or hasattr(function, "__submitit_checkpoint__")


def request_resume(outcome: Path) -> None:
    """Record that the job should be resumed; its script decides whether and when."""
    files.replace(outcome, "resume\n")


class Stopping:
    """Handles an early stop in one rank."""

    def __init__(self, submission: DelayedSubmission, pickle: Path, number: signal.Signals):
        """`pickle`: the file of the submission. `number`: the signal that asks for a stop."""
        self._submission = submission
        self._pickle = pickle
        self._signal = number
        self._env = RankEnv.detect()
        self._stop = Path(os.environ["CASTOFF_STOP_FILE"])
        self._outcome = Path(os.environ["CASTOFF_OUTCOME_FILE"])
        self._leaving = Path(os.environ["CASTOFF_ATTEMPT_DIR"]) / "leaving"
        self._look_every = max(_LOOK_EVERY, self._env.world_size / _LOOKS_PER_SECOND)
        self._over = threading.Event()
        """Set when the function has returned."""
        self._due = False
        self._forking = threading.local()
        """For each thread that forks, the signals that it had blocked before."""

    def begin(self) -> None:
        """Start watching for requests to stop. Must be called in the main thread."""
        signals = [self._signal]
        if can_resume(self._submission.function):
            signals.append(signal.SIGTERM)  # a resumable function saves its state; others end at once
            call = self._submission.result
            self._submission.result = functools.partial(self._result, call)  # type: ignore[method-assign]
            look = self._look_for_stop if self._env.rank == 0 else self._look_for_exit
            threading.Thread(target=look, name="castoff-stop", daemon=True).start()
        for number in signals:
            signal.signal(number, self._on_signal)
        # A data loader ends its forked workers with SIGTERM, which must not stop the job.
        os.register_at_fork(before=self._hold, after_in_parent=self._let_go, after_in_child=self._forget)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._due and number == self._signal:
            self._due = False
            if not self._over.is_set():
                self._checkpoint()
            return
        with contextlib.suppress(OSError):  # without the stop file, the function continues
            self._stop.touch(mode=0o600)

    def _hold(self) -> None:
        self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, self._signal})

    def _let_go(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._forking.mask)

    def _forget(self) -> None:
        """In a forked child, ignore signals that were meant for the parent."""
        for number, action in ((signal.SIGTERM, signal.SIG_DFL), (self._signal, signal.SIG_IGN)):
            if signal.getsignal(number) == self._on_signal:
                signal.signal(number, action)
        self._let_go()

    def _result(self, call: Callable[[], Any]) -> Any:
        """Return the function's result. If it failed only because other ranks are exiting, exit at the same
        time.
        """
        try:
            return call()
        except Exception:
            if self._env.rank and (exit_time := self._exit_time()):
                _exit_at(exit_time)
            raise
        finally:
            self._over.set()

    # Rank 0

    def _look_for_stop(self) -> None:
        while not self._over.wait(self._look_every):
            if os.path.exists(self._stop):  # noqa: PTH110 - ignores errors of the file system until the next look
                self._due = True
                main = threading.main_thread().ident
                assert main is not None  # the main thread is running
                signal.pthread_kill(main, self._signal)  # a signal also interrupts a blocking call
                return

    def _checkpoint(self) -> None:
        """Call `checkpoint`, ask to be resumed, notify the other ranks, and exit."""
        log = logger.get_logger()
        log.info("asked to stop: calling checkpoint()")
        resumed = self._submission._checkpoint_function()
        if resumed is None:
            raise UncompletedJobError("asked to stop, but checkpoint() returned None: it cannot be resumed")
        with files.replacing(self._pickle) as file:
            cloudpickle.dump(resumed, file)
        request_resume(self._outcome)
        log.info("state saved; the job's script decides when the function resumes")
        if self._env.world_size == 1:
            timer = threading.Timer(_UNWINDING, os._exit, [0])
            timer.daemon = True
            timer.start()
            raise SystemExit(0)
        exit_time = time.time() + 2 * self._look_every + 1
        files.replace(self._leaving, f"{exit_time}\n")
        _exit_at(exit_time)

    # The other ranks

    def _look_for_exit(self) -> None:
        while not self._over.wait(self._look_every):
            if exit_time := self._exit_time():
                _exit_at(exit_time)

    def _exit_time(self) -> float | None:
        """The time at which all ranks exit; None until rank 0 has announced it."""
        try:
            # O_CREAT, because network file systems then do not answer from their cache.
            descriptor = os.open(self._leaving, os.O_RDONLY | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, encoding="utf-8") as file:
                return float(file.read() or 0) or None
        except OSError:  # such as a full disk; the next call tries again
            return None


def _exit_at(exit_time: float) -> None:
    """Exit with code 0 at this time, without cleaning up: the next attempt starts afresh."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    time.sleep(max(0.0, exit_time - time.time()))
    os._exit(0)
