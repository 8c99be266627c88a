"""A lock's file: one process holds the lock, and another replaces the file if the holder is lost.

The kernel releases a lock however its holder ends. But a file server, such as NFS, may keep the lock of a
process on a lost host: then another process replaces the file, and the holder, if it still runs, detects this
by `LockFile.is_current`.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec

from castoff.launcher.process.locks import NoLocks, try_lock
from castoff.trainers.files.durable import draft_of

logger = logging.getLogger(__name__)


class Holder(msgspec.Struct, frozen=True, omit_defaults=True):
    """The process that holds a lock, as recorded in the lock's file."""

    pid: int
    host: str
    run: str | None = None
    member: int = 0
    attempt: int = 0

    def __str__(self) -> str:
        run = f" of run {self.run}" if self.run else ""
        text = f"process {self.pid} on {self.host}{run}"
        return "".join(letter for letter in text if letter.isprintable())

    @classmethod
    def here(cls, environ: Mapping[str, str]) -> Holder:
        """This process."""
        return cls(
            pid=os.getpid(),
            host=socket.gethostname(),
            run=Path(environ.get("CASTOFF_RUN_DIR", "")).name or None,
            member=int(environ.get("CASTOFF_ARRAY_INDEX") or 0),
            attempt=int(environ.get("CASTOFF_ATTEMPT") or 0),
        )


class LockFile:
    """A lock that this process holds until `close`, or until the process ends."""

    def __init__(self, path: Path, descriptor: int, *, exclusive: bool):
        self.path = path
        self.descriptor = descriptor
        self.exclusive = exclusive
        """False: the file system has no locks, so others may hold it, too."""

    @classmethod
    def take(cls, path: Path) -> LockFile | None:
        """Take the lock; None if another process holds it, or has just replaced or removed its file.

        Raises:
            OSError: the lock's file cannot be made.
        """
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            lock = cls(path, descriptor, exclusive=True)
            if try_lock(descriptor, inherited=False) and lock.is_current():
                return lock
        except NoLocks as error:
            logger.info(
                "%s: no locks there (%s), so several processes may write at once", path, error.strerror
            )
            return cls(path, descriptor, exclusive=False)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
        return None

    @classmethod
    def replace(cls, path: Path, holder: Holder) -> LockFile:
        """Replace the file of a lost holder; this process holds the new lock before others see the file."""
        draft = draft_of(path)
        draft.unlink(missing_ok=True)
        lock = cls(path, os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666), exclusive=True)
        try_lock(lock.descriptor, inherited=False)
        lock.write(holder)
        draft.replace(path)
        return lock

    def write(self, holder: Holder) -> None:
        """Record the lock's holder in the file."""
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, msgspec.json.encode(holder), 0)

    def is_current(self) -> bool:
        """Whether the path still leads to this file, which another process may have replaced or removed."""
        try:
            return os.path.samestat(os.fstat(self.descriptor), self.path.stat())
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Release the lock."""
        os.close(self.descriptor)


def holder_of(path: Path) -> Holder | None:
    """The recorded holder of a lock; must not be called by the holder itself.

    The kernel releases a process's locks on a file when the process closes any descriptor of it.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Holder)
    except (OSError, msgspec.DecodeError):
        return None
