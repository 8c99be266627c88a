"""Who uses the code of a project: many at a time while they send and submit it, or one that removes some."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from castoff.launcher.errors import CastoffError, printable
from castoff.launcher.process.locks import NoLocks, try_lock

_LOCK = ".lock"

_PATIENCE = 60.0
"""Seconds in which a removal, which only renames while it holds the lock, is over."""


@contextlib.contextmanager
def in_use(project: Path) -> Iterator[None]:
    """Keep the code of a project from being removed.

    Where the file system has no locks, nothing is removed at all.

    Raises:
        OSError: the lock cannot be made.
        CastoffError: it is held for long.
    """
    with _opened(project) as file:
        give_up = time.monotonic() + _PATIENCE
        with contextlib.suppress(NoLocks):
            while not try_lock(file.fileno(), inherited=False, shared=True):
                if time.monotonic() > give_up:
                    raise CastoffError(
                        f"{printable(str(project))}: castoff removes code there; call the same command again"
                    )
                time.sleep(0.05)
        yield


@contextlib.contextmanager
def alone(project: Path) -> Iterator[bool]:
    """Whether nobody uses the code of a project; then nobody begins to until this ends.

    Raises:
        OSError: nobody can tell.
    """
    with _opened(project) as file:
        yield try_lock(file.fileno(), inherited=False)


def _opened(project: Path) -> IO[str]:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.fdopen(os.open(project / _LOCK, flags, 0o600), "r+")
