"""The links `latest` and `best` beside the checkpoints, for people."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS)

logger = logging.getLogger(__name__)


class Links:
    """Links in a folder to checkpoints in it; on a file system without links there are none."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._copies: set[Path] = set()
        """Folders found where links were expected."""

    def point(self, name: str, path: Path | None) -> None:
        """Let a link lead to a checkpoint; None: remove it."""
        link = self._folder / name
        if link.is_dir() and not link.is_symlink():
            # scp -r turns a link into a folder: possibly outdated, but somebody's copy.
            if link not in self._copies:
                logger.warning("%s is a folder, not a link to a checkpoint, and is left unchanged", link)
            self._copies.add(link)
            return
        if path is None:
            link.unlink(missing_ok=True)
            return
        draft = self._folder / f".{name}"
        draft.unlink(missing_ok=True)
        try:
            draft.symlink_to(path.name)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return
        draft.replace(link)
