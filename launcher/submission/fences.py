"""Fences of a run's attempts: a resubmission has what may still run of earlier ones end itself, and waits.

A fence is a file with one word, which the script and one process of each node read every few seconds. Between
attempts of one submission, scripts do the same (templates/machinery/fence.sh).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from pathlib import Path

from castoff.launcher.runs.run import LOCK, RunDirectory

FENCE_TIME = 10.0
"""Seconds after which every process that reads a fence has read it and ended: twice a script's
`castoff_fence_every`."""


def raise_fences(run: RunDirectory, members: Collection[int]) -> float:
    """Tell everything that may still run of these members to end itself, and return how many seconds that may
    take.

    The run is locked, and its scheduler has no job of it.

    Raises:
        CastoffError: their folder cannot be read.
        OSError: the lock file or a fence cannot be written.
    """
    (run.path / LOCK).touch()
    now = (run.path / LOCK).stat().st_mtime  # by the clock that dates the fences, too
    folders = [folder for member, _, folder in run.attempts() if member in members]
    return max((_raise(folder, now) for folder in folders), default=0.0)


def _raise(attempt: Path, now: float) -> float:
    """How many seconds processes of an attempt may still run: 0 if it has no fence, or has recorded their
    end."""
    with contextlib.suppress(FileNotFoundError):  # anything else says nothing about what may still run
        descriptor = os.open(attempt / "fence", os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "r+b", buffering=0) as fence:
            word = fence.read(8)
            if word == b"gone\n":
                return 0.0
            if word == b"live\n":
                fence.seek(0)
                fence.write(b"next\n")
            age = now - os.fstat(descriptor).st_mtime
        return max(FENCE_TIME - max(age, 0.0), 0.0)
    return 0.0
