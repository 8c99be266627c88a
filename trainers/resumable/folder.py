"""The folder of a program's checkpoints: its default place, and its lock."""

from __future__ import annotations

import os
from collections.abc import Mapping
from numbers import Integral
from pathlib import Path

from castoff.trainers.checkpointing.run_lock import RunLock
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.distributed.attempt import Attempt


def default_folder(environ: Mapping[str, str] | None = None) -> Path:
    """`checkpoints` in the castoff run's directory, for each member of an array another; without a run, in
    the working directory.
    """
    environ = os.environ if environ is None else environ
    folder = Path(environ.get("CASTOFF_RUN_DIR") or "", "checkpoints")
    if environ.get("CASTOFF_RUN_DIR") and int(environ.get("CASTOFF_ARRAY_COUNT") or 1) > 1:
        return folder / f"member-{environ.get('CASTOFF_ARRAY_INDEX') or 0}"
    return folder


def check_saves(save_every: int, keep: int) -> None:
    """Check how often a program saves, and how many checkpoints it keeps.

    Raises:
        ValueError: it saves never, or keeps too few.
    """
    if not isinstance(save_every, Integral) or save_every < 1:
        raise ValueError(f"save_every is {save_every!r}, but must be an integer from 1 on")
    if not isinstance(keep, Integral) or keep < 2:
        raise ValueError(
            f"keep is {keep!r}, but must be an integer from 2 on, because a single checkpoint may be damaged"
        )


class Held:
    """A folder of checkpoints, made and locked by rank 0 until its process ends.

    Raises:
        ConfigError: another process holds it.
    """

    def __init__(self, folder: Path, attempt: Attempt):
        self._attempt = attempt
        try:
            self._lock = RunLock(folder, attempt)
        except ConfigError as error:
            raise error.reworded(_in_our_words) from None

    def check(self) -> None:
        """Check that this process may still write there.

        Raises:
            AttemptOver: its attempt is over, or another process has taken the lock.
        """
        self._attempt.check()
        self._lock.check()


def _in_our_words(problem: str) -> str:
    said = problem.removeprefix("training.run: ")
    return f"resumable: {said.replace('--set training.run=NAME', 'resumable.Run(FOLDER, …)')}"
