"""Locks on files, which the kernel releases when a process dies, for whatever reason.

There are two kinds. An inherited lock (flock(2)) is held by every process that inherits the open file; thus a
run's lock passes from its submission to its ranks. The other kind (fcntl(2)) is held by one process alone,
not by children that outlive it, and applies on all hosts. On GPFS and others, flock applies on one host only.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from castoff.launcher import clock
from castoff.launcher.errors import CastoffError

_BUSY = (errno.EACCES, errno.EAGAIN)
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


class NoLocks(OSError):
    """The file system has no locks, so castoff cannot tell whether another process holds one."""


def try_lock(descriptor: int, *, inherited: bool = True, shared: bool = False) -> bool:
    """Try to lock an open file; False if another process holds the lock.

    Raises:
        NoLocks: this file system has no locks.
        OSError: the file cannot be locked.
    """
    lock = fcntl.flock if inherited else fcntl.lockf
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        lock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _BUSY:
            return False
        if error.errno in _NO_LOCKS:
            raise NoLocks(error.errno, error.strerror) from error
        raise
    return True


def take(descriptor: int, patience: float = 5.0, *, inherited: bool = True, shared: bool = False) -> None:
    """Lock an open file. A file that was inherited locked stays locked.

    Raises:
        NoLocks: this file system has no locks.
        BlockingIOError: another process has held the lock for `patience` seconds.
    """
    # `is_locked` in another process holds the lock for a moment, too: hence the patience.
    if not clock.until(lambda: try_lock(descriptor, inherited=inherited, shared=shared), 0.01, patience):
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


@contextlib.contextmanager
def locked(path: Path, *, patience: float = 5.0) -> Iterator[IO[str]]:
    """Hold the lock file `path`.

    Processes that inherit the open file hold it as well, until the last of them is gone.

    Raises:
        BlockingIOError: another process has held the lock for `patience` seconds.
        OSError: the file cannot be opened, or is a link.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    with os.fdopen(descriptor, "r+") as file:
        take(descriptor, patience)
        yield file


def is_locked(path: Path) -> bool:
    """Whether a living process holds the lock file `path`.

    Raises:
        CastoffError: the file cannot be opened or locked.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            return not try_lock(descriptor, shared=True)
        finally:
            os.close(descriptor)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise CastoffError(f"{path}: cannot be accessed: {error.strerror}") from error
