"""One process at a time makes what lies in a folder."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from launcher.locks import NoLocks, try_lock

logger = logging.getLogger(__name__)


@contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Hold the lock of a folder that may not be there yet: `.NAME.lock` beside it, which stays.

    Waits until whoever holds it has let go, which its end does, too. Gives False where the file system has
    no locks, and nobody knows who else is at work.

    Raises:
        OSError: the lock's file cannot be made.
    """
    path = folder.with_name(f".{folder.name}.lock")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        yield _taken(descriptor, path)
    finally:
        os.close(descriptor)


def _taken(descriptor: int, path: Path) -> bool:
    try:
        if not try_lock(descriptor, inherited=False):
            logger.info("Waiting for another process, which holds %s", path)
            try_lock(descriptor, inherited=False, wait=True)
    except NoLocks as error:
        logger.info("%s: no locks there (%s), so nothing keeps two builds apart", path, error.strerror)
        return False
    return True
