"""The request to stop early, for programs of any framework; it needs no torch."""

from __future__ import annotations

import time
from typing import NoReturn

from castoff.launcher.ranks import RankEnv
from castoff.trainers.distributed.attempt import Attempt
from castoff.trainers.distributed.requests import Requests, StoppedEarly
from castoff.trainers.distributed.stacks import write_stacks_on_request


class StopSignal:
    """Shows whether to stop, and records that the program can be resumed.

    The stop file and the deadline are seen by rank 0 only, and a signal by the rank that gets it: with
    several ranks, send rank 0's `asked()` to the others, by the framework's broadcast.
    """

    def __init__(self) -> None:
        rank = RankEnv.detect().rank
        self._attempt = Attempt()
        self._requests = Requests(look=self._look, is_main=rank == 0)
        self._requests.listen()
        self._step: int | None = None
        self._last: float | None = None
        write_stacks_on_request(rank)

    def asked(self, step: int | None = None) -> bool:
        """Whether to save and stop now; call it after each step.

        Time between two calls counts as a step: near the deadline, the answer is True early enough for
        another step. `step`: the number of completed steps, castoff's evidence of progress.
        """
        now = time.perf_counter()
        if self._last is not None:
            self._requests.step_took(now - self._last)
        self._last, self._step = now, step
        return self._requests.asked() is not None

    def stop(self) -> NoReturn:
        """Record that the program stops early and can be resumed, and end it; call it after saving.

        Raises:
            StoppedEarly: always. It is a SystemExit.
        """
        why = self._requests.asked() or "another rank was asked"
        self._requests.close()
        self._requests.record_outcome("resume")
        raise StoppedEarly(f"stopped early: {why}")

    def _look(self) -> None:
        self._attempt.check()
        if self._step is not None:
            self._attempt.record_progress(self._step)
