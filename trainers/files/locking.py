"""Lets one process at a time build a folder.

The holder of such a lock touches its file regularly. A file server may keep the lock of a process on a lost
host: then only the missing touches distinguish it from a slow process.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from castoff.trainers.files.lock_file import Holder, LockFile, holder_of

logger = logging.getLogger(__name__)

BEAT = 15.0
"""Seconds between two touches of the lock's file."""

SILENCE = 300.0
"""Seconds without a touch after which a holder counts as lost. On NFS others see a touch up to a minute
late."""

REPORTED_EVERY = 300.0
"""Seconds between two messages about waiting, which show that the job does not hang."""

_LOOKS = (0.05, 2.0)
"""The first and the longest interval between attempts to take the lock, in seconds."""


@contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Hold the lock of a folder, which need not exist: `.NAME.lock` next to it, which is kept.

    Waits until the holder releases the lock or ends, or has not touched it for `SILENCE` seconds. Yields
    False in the latter case, and if the file system has no locks: another process may be building the folder,
    too.

    Raises:
        OSError: the lock's file cannot be made.
    """
    lock, alone = _taken(folder.with_name(f".{folder.name}.lock"))
    try:
        with _showing_life(lock):
            yield alone
    finally:
        lock.close()


def _taken(path: Path) -> tuple[LockFile, bool]:
    """Wait for the lock; returns it, and whether no other process can be building the folder."""
    waiting, pause = _Waiting(path), _LOOKS[0]
    while True:
        lock = LockFile.take(path)
        if lock is not None:
            return lock, lock.exclusive
        if waiting.is_in_vain():
            return LockFile.replace(path, Holder.here(os.environ)), False
        time.sleep(pause)
        pause = min(2 * pause, _LOOKS[1])


class _Waiting:
    """Observes the holder of a lock while waiting, and logs that."""

    def __init__(self, path: Path):
        self._path = path
        self._sign: tuple[int, int] | None = None
        self._alive = self._reported = 0.0
        """Times of the last touch and the last message."""

    def is_in_vain(self) -> bool:
        """Check the lock's file; returns whether its holder counts as lost."""
        try:
            status, now = self._path.stat(), time.monotonic()
        except FileNotFoundError:
            return False
        sign, first = (status.st_ino, status.st_mtime_ns), self._sign is None
        if sign != self._sign:
            self._sign, self._alive = sign, now
        if first:
            return False  # a new holder may not have recorded itself yet
        holder, silent = holder_of(self._path) or "an unnamed process", now - self._alive
        if silent >= SILENCE:
            words = "%s holds %s and has shown no sign of life for %.0f s, as if its host were lost: "
            logger.warning(f"{words}this process takes its place", holder, self._path, silent)
            return True
        if not self._reported:
            words = "Waiting for another process: %s holds %s. If it is gone, delete that file; after %.0f s "
            logger.info(
                f"{words}without a sign of life from it, this process takes its place",
                holder,
                self._path,
                SILENCE,
            )
        elif now - self._reported >= REPORTED_EVERY and self._alive > self._reported:
            logger.info("Still waiting: %s, which is alive, holds %s", holder, self._path)
        else:
            return False
        self._reported = now
        return False


@contextmanager
def _showing_life(lock: LockFile) -> Iterator[None]:
    """Record this process in the lock's file, and touch the file regularly in this context."""
    over = threading.Event()

    def show() -> None:
        while not over.wait(BEAT):
            with suppress(OSError):  # others will take the lock after `SILENCE`
                os.utime(lock.descriptor)

    with suppress(OSError):  # e.g. on a full disk; the holder is then unknown
        lock.write(Holder.here(os.environ))
    thread = threading.Thread(target=show, name="castoff-lock", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
