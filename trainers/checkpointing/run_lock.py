"""The lock of a run's folder: rank 0 holds it until it ends, and a later attempt can always start.

A rank 0 on an unreachable host cannot be ended, and a file server may keep the lock of a lost host. So the
next attempt of the same castoff run replaces the lock's file. The process that held the old lock detects this
by `RunLock.check` before each checkpoint that it writes.
"""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

from castoff.trainers.configuration.fields import ConfigError
from castoff.trainers.distributed.attempt import Attempt, AttemptOver
from castoff.trainers.files.lock_file import Holder, LockFile, holder_of

ENDED = 5.0
"""Seconds to wait for the lock of an earlier attempt whose script has recorded its ending."""

PREVIOUS = 60.0
"""Seconds that an attempt of a castoff run waits for any other holder."""

_LOOK_EVERY = 0.1

logger = logging.getLogger(__name__)

_held: dict[tuple[int, int, int], LockFile] = {}
"""Locks by (process id, device, inode). Closing any other descriptor of the file would release the lock, so a
process with two trainers for a folder opens it only once. Unlike with flock, a forked process does not
inherit the lock: loader workers may outlive rank 0."""


class RunLock:
    """The lock of a folder, held until this process ends.

    Raises:
        ConfigError: another process holds it.
    """

    def __init__(self, folder: Path, attempt: Attempt):
        self._path = folder / ".lock"
        self._attempt = attempt
        began = time.monotonic()
        while True:
            folder.mkdir(parents=True, exist_ok=True)
            lock = self._known() or LockFile.take(self._path)
            if lock is not None:
                break
            holder = holder_of(self._path)
            if time.monotonic() - began < self._patience(holder):
                time.sleep(_LOOK_EVERY)
                continue
            if holder is None or not self._is_earlier_attempt(holder):
                raise ConfigError(
                    [
                        f"training.run: {holder or 'another process'} is training in {folder}; wait "
                        "until it has ended, or give this training its own folder: --set "
                        "training.run=NAME"
                    ]
                )
            lock = LockFile.replace(self._path, attempt.me)
            logger.warning("%s: replaced the lock of %s, which an earlier attempt left", self._path, holder)
            break
        if lock.exclusive:
            lock.write(attempt.me)
            _held[_key(os.fstat(lock.descriptor))] = lock
        self._lock = lock

    def check(self) -> None:
        """Check that this process still holds the lock.

        Raises:
            AttemptOver: a later attempt has replaced it.
        """
        if not self._path.exists() or not self._lock.exclusive or self._lock.is_current():
            return
        raise AttemptOver(
            f"{holder_of(self._path) or 'another process'} is now training in {self._path.parent}: this "
            "attempt was considered lost. It ends without writing anything more"
        )

    def _known(self) -> LockFile | None:
        """The lock, if this process holds it already."""
        try:
            return _held.get(_key(self._path.stat()))
        except FileNotFoundError:
            return None

    def _patience(self, holder: Holder | None) -> float:
        if self._attempt.run is None:
            return 0.0
        if holder and self._is_earlier_attempt(holder) and self._attempt.has_ended(holder.attempt):
            return ENDED
        return PREVIOUS

    def _is_earlier_attempt(self, holder: Holder) -> bool:
        """Whether the lock's holder is an earlier attempt of the same member of the same run."""
        me = self._attempt.me
        same_run = me.run is not None and (holder.run, holder.member) == (me.run, me.member)
        return same_run and holder.attempt < me.attempt


def _key(file: os.stat_result) -> tuple[int, int, int]:
    return os.getpid(), file.st_dev, file.st_ino
