"""Lets one process at a time create what is in a folder.

Whoever holds the lock of one touches its file again and again. A file server may keep the lock of a process
that is gone with its host, as NFS does: then that is all that distinguishes it from one that takes long.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from castoff.launcher.process.locks import NoLocks, try_lock

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

    Waits until whoever holds it has let go, which its end does, too, or has given no sign of life for
    `SILENCE`. Gives False in that case, and where the file system has no locks: nobody knows who else is at
    work.

    Raises:
        OSError: the lock's file cannot be made.
    """
    descriptor, alone = _taken(folder.with_name(f".{folder.name}.lock"))
    try:
        with _showing_life(descriptor):
            yield alone
    finally:
        os.close(descriptor)


def _taken(path: Path) -> tuple[int, bool]:
    """The lock's open file, and whether nobody else can be at work."""
    waiting, pause = _Waiting(path), _LOOKS[0]
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if try_lock(descriptor, inherited=False):
                if _lies_at(descriptor, path):
                    return descriptor, True
            elif _lies_at(descriptor, path) and waiting.is_in_vain(descriptor):
                return _replaced(descriptor, path), False
        except NoLocks as error:
            logger.info("%s: no locks there (%s), so nothing keeps two builds apart", path, error.strerror)
            return descriptor, False
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        time.sleep(pause)
        pause = min(2 * pause, _LOOKS[1])


class _Waiting:
    """Waits for the holder of a lock, and says so."""

    def __init__(self, path: Path):
        self._path = path
        self._sign: tuple[int, int] | None = None
        self._alive = self._reported = 0.0
        """When the last sign of life and the last message were."""

    def is_in_vain(self, descriptor: int) -> bool:
        """Look at the lock's file, which was just opened: whether its holder is taken for lost."""
        status, now = os.fstat(descriptor), time.monotonic()
        sign, first = (status.st_ino, status.st_mtime_ns), self._sign is None
        if sign != self._sign:
            self._sign, self._alive = sign, now
        if first:
            return False  # who has just taken it may not have written its name
        if now - self._alive >= SILENCE:
            logger.warning(
                "%s holds %s and has shown no sign of life for %.0f s, as on a host that is lost: this "
                "process takes its place",
                *(_holder(descriptor), self._path, now - self._alive),
            )
            return True
        if not self._reported:
            logger.info(
                "Waiting for another process: %s holds %s. If it is gone, delete that file; after %.0f s "
                "without a sign of life of it this process takes its place",
                *(_holder(descriptor), self._path, SILENCE),
            )
        elif now - self._reported >= REPORTED_EVERY and self._alive > self._reported:
            logger.info("Still waiting: %s, which is alive, holds %s", _holder(descriptor), self._path)
        else:
            return False
        self._reported = now
        return False


def _replaced(silent: int, path: Path) -> int:
    """A new file of the lock, which this process holds, in the place of one whose holder is lost."""
    draft = path.with_name(f"{path.name}.{socket.gethostname()}-{os.getpid()}")
    descriptor = os.open(draft, os.O_RDWR | os.O_CREAT, 0o666)
    try_lock(descriptor, inherited=False)
    draft.replace(path)
    os.close(silent)
    return descriptor


def _lies_at(descriptor: int, path: Path) -> bool:
    """Whether an open file is still the one of this name: somebody may have deleted or replaced it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _holder(descriptor: int) -> str:
    """Who holds the lock, as that process has written it there."""
    text = os.pread(descriptor, 300, 0).decode("utf-8", "replace").partition("\n")[0]
    return "".join(letter for letter in text if letter.isprintable()) or "one that gives no name"


@contextmanager
def _showing_life(descriptor: int) -> Iterator[None]:
    """Name this process in the lock's file, and touch it for as long as this lasts."""
    run = Path(os.environ.get("CASTOFF_RUN_DIR", "")).name
    name = f"process {os.getpid()} on {socket.gethostname()}{f' of run {run}' if run else ''}\n"
    over = threading.Event()

    def show() -> None:
        while not over.wait(BEAT):
            with suppress(OSError):  # others take the lock after a while
                os.utime(descriptor)

    with suppress(OSError):  # the disk is full, say: then nobody reads the name
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, name.encode(), 0)
    thread = threading.Thread(target=show, name="castoff-lock", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
