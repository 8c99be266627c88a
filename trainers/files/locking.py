"""Lets one process at a time create what is in a folder.

The holder of such a lock touches its file again and again. A file server may keep the lock of a process
that is gone with its host: then its silence alone distinguishes it from one that takes long.
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
"""Seconds from one sign of life to the next."""

SILENCE = 300.0
"""Seconds without any after which a holder is taken for lost. On NFS others see one up to a minute later."""

REPORTED_EVERY = 300.0
"""Seconds from one message of a wait to the next. A job that waits is not hanging; its output shows that."""

_LOOKS = (0.05, 2.0)
"""Seconds between the first two looks, and between any two at most."""


@contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Hold the lock of a folder that may not be there yet: `.NAME.lock` beside it, which stays.

    Waits until the holder has let go, which its end does, too, or has given no sign of life for `SILENCE`.
    Gives False in that case, and where the file system has no locks: others may be at work, too.

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
    """The lock, and whether nobody else can be at work."""
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
    """Waits for the holder of a lock, and says so."""

    def __init__(self, path: Path):
        self._path = path
        self._sign: tuple[int, int] | None = None
        self._alive = self._reported = 0.0
        """When the last sign of life and the last message were."""

    def is_in_vain(self) -> bool:
        """Look at the lock's file: whether its holder is taken for lost."""
        try:
            status, now = self._path.stat(), time.monotonic()
        except FileNotFoundError:
            return False
        sign, first = (status.st_ino, status.st_mtime_ns), self._sign is None
        if sign != self._sign:
            self._sign, self._alive = sign, now
        if first:
            return False  # who has just taken it may not have written its name
        holder, silent = holder_of(self._path) or "a process that gives no name", now - self._alive
        if silent >= SILENCE:
            words = "%s holds %s and has shown no sign of life for %.0f s, as on a host that is lost: "
            logger.warning(f"{words}this process takes its place", holder, self._path, silent)
            return True
        if not self._reported:
            words = "Waiting for another process: %s holds %s. If it is gone, delete that file; after %.0f s "
            logger.info(
                f"{words}without a sign of life of it this process takes its place",
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
    """Name this process in the lock's file, and touch it for as long as this lasts."""
    over = threading.Event()

    def show() -> None:
        while not over.wait(BEAT):
            with suppress(OSError):  # others take the lock after a while
                os.utime(lock.descriptor)

    with suppress(OSError):  # the disk is full, say: then nobody reads the name
        lock.write(Holder.here(os.environ))
    thread = threading.Thread(target=show, name="castoff-lock", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
