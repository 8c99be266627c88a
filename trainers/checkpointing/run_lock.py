"""The lock of a run's folder: rank 0 holds it until it ends, and a later attempt can always begin.

Nobody can end a rank 0 on a lost host, and a file server may keep a lock whose host is gone. So the next
attempt of the same castoff run replaces the lock file. Whoever held the old one finds that out by
`RunLock.check`, before anything of it becomes a checkpoint.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from pathlib import Path

import msgspec

from castoff.launcher.process.locks import NoLocks, try_lock
from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.distributed.attempt import Attempt, AttemptOver

ENDED = 5.0
"""Seconds that a lock is waited for whose holder's attempt is over, by its script's word."""

PREVIOUS = 60.0
"""Seconds that an attempt of a castoff run waits for anybody else."""

_LOOK_EVERY = 0.1

logger = logging.getLogger(__name__)


class _Holder(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the lock file says of whoever holds it."""

    pid: int
    host: str
    run: str | None = None
    member: int = 0
    attempt: int = 0

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


_held: dict[tuple[int, int, int], int] = {}
"""Descriptors by (process, device, inode). Closing any other descriptor of the same file would let go of
the lock, so a process that makes two trainers for a folder opens it once. A fork inherits neither the
lock, as it would flock's, nor a claim to it: loader workers may outlive rank 0."""


class RunLock:
    """The lock of a folder, held until this process ends; made anew where the folder is made anew.

    Raises:
        ConfigError: another process holds it.
    """

    def __init__(self, folder: Path, attempt: Attempt):
        self._path = folder / ".lock"
        self._attempt = attempt
        began = time.monotonic()
        while True:
            folder.mkdir(parents=True, exist_ok=True)
            held, holder = self._try()
            if held:
                return
            if time.monotonic() - began >= self._patience(holder):
                break
            time.sleep(_LOOK_EVERY)
        if not self._is_before(holder):
            raise ConfigError(
                [
                    f"training.run: {holder or 'another process'} trains into {folder}; wait until that has "
                    "ended, or give this training a folder of its own: --set training.run=NAME"
                ]
            )
        self._replace()
        logger.warning("%s: replaced the lock of %s, which an earlier attempt left", self._path, holder)

    def check(self) -> None:
        """See that nobody has taken its place.

        Raises:
            AttemptOver: a later attempt has.
        """
        there = _stat(self._path)
        if there is None or self._descriptor is None or _key(there) == _key(os.fstat(self._descriptor)):
            return
        raise AttemptOver(
            f"{_holder(self._path) or 'another process'} now trains into {self._path.parent}: this attempt "
            "was taken for lost. It ends, and writes nothing more"
        )

    def _try(self) -> tuple[bool, _Holder | None]:
        """Whether this process holds it now; else who does, as far as is known."""
        if (there := _stat(self._path)) and _key(there) in _held:
            self._descriptor: int | None = _held[_key(there)]
            return True, None
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if not try_lock(descriptor, inherited=False):
                os.close(descriptor)
                return False, _holder(self._path)
        except OSError as error:
            os.close(descriptor)
            if not isinstance(error, NoLocks):
                raise
            words = "%s: no locks there (%s), so nothing keeps two runs apart"
            logger.info(words, self._path, error.strerror)
            self._descriptor = None
            return True, None
        if (there := _stat(self._path)) is None or _key(there) != _key(os.fstat(descriptor)):
            os.close(descriptor)  # somebody has just set the folder aside, or taken this lock's place
            return False, None
        self._keep(descriptor)
        return True, None

    def _replace(self) -> None:
        """Put another lock in its place, held by this process before others see it."""
        draft = self._path.with_name(".lock.new")
        draft.unlink(missing_ok=True)
        descriptor = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        try_lock(descriptor, inherited=False)
        self._keep(descriptor)
        draft.replace(self._path)

    def _keep(self, descriptor: int) -> None:
        me, attempt = _Holder(os.getpid(), socket.gethostname()), self._attempt
        if attempt.run is not None:
            me = _Holder(me.pid, me.host, attempt.run, attempt.member, attempt.number)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, msgspec.json.encode(me), 0)
        self._descriptor = _held[_key(os.fstat(descriptor))] = descriptor

    def _patience(self, holder: _Holder | None) -> float:
        if self._attempt.run is None:
            return 0.0
        ended = holder is not None and self._is_before(holder) and self._attempt.has_ended(holder.attempt)
        return ENDED if ended else PREVIOUS

    def _is_before(self, holder: _Holder | None) -> bool:
        """Whether it is of an earlier attempt: its job had ended, by its scheduler, when this one began."""
        mine = self._attempt
        return (
            holder is not None
            and holder.run is not None
            and (holder.run, holder.member) == (mine.run, mine.member)
            and holder.attempt < mine.number
        )


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _key(file: os.stat_result) -> tuple[int, int, int]:
    return os.getpid(), file.st_dev, file.st_ino


def _holder(path: Path) -> _Holder | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Holder)
    except (OSError, msgspec.DecodeError):
        return None
