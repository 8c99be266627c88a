"""One log file that grows, read from where the last look ended."""

from __future__ import annotations

import contextlib
import os
from io import FileIO
from pathlib import Path
from typing import NamedTuple

_MARK = 64
"""Bytes before the place reached that are compared, so that new contents are known for what they are."""
_BLOCK = 64 * 1024


class Growth(NamedTuple):
    """What a look at a file has brought."""

    data: bytes = b""
    restarted: bool = False
    """Whether `data` begins a file: another one has its name now, or it was emptied or written anew."""


class Tail:
    """A file that grows, may not be there yet, and may be renamed, replaced or emptied meanwhile.

    It is opened for every look and never held open. So a thousand logs need one descriptor, and a
    network file system is asked for the file's true size, which it knows at an opening and not before.
    """

    def __init__(self, path: Path, offset: int = 0):
        """`offset`: where to begin in the file that has this name at the first look."""
        self.path = path
        self.trouble: str | None = None
        """Why the last look failed, in the system's words; a file that is missing is none."""
        self._offset = offset
        self._file: tuple[int, int] | None = None  # device and inode
        self._mark = b""

    def read(self, limit: int) -> Growth:
        """What was added since the last look, up to `limit` bytes; nothing where it cannot be read."""
        try:
            growth = self._look(limit)
        except OSError as error:
            self.trouble = error.strerror or str(error)
            return Growth()
        self.trouble = None
        return growth

    def _look(self, limit: int) -> Growth:
        try:
            file = _opened(self.path)
        except FileNotFoundError:
            return Growth(self._left_behind(limit))
        with file:
            found = os.fstat(file.fileno())
            known = (found.st_dev, found.st_ino)
            restarted = self._file not in (None, known)
            if restarted and (rest := self._left_behind(limit)):
                return Growth(rest)
            self._file = known
            restarted = restarted or found.st_size < self._offset
            if not restarted and found.st_size == self._offset:
                return Growth()
            data = None if restarted else self._after_mark(file.fileno(), limit)
            if data is not None:
                return Growth(data)
            self._offset, self._mark = 0, b""
            return Growth(self._after_mark(file.fileno(), limit) or b"", restarted=True)

    def _after_mark(self, file: int, limit: int) -> bytes | None:
        """The next bytes, which are then taken as read; None: what was read is not there any more."""
        data = os.pread(file, len(self._mark) + limit, self._offset - len(self._mark))
        if not data.startswith(self._mark):
            return None
        self._offset += len(data) - len(self._mark)
        end = data[-_MARK:]
        new, self._mark = data[len(self._mark) :], end
        if b"\0" in end:  # may be a hole that a network file system shows until the data arrive
            self._mark = b""
        return new

    def _left_behind(self, limit: int) -> bytes:
        """What is still to be read of the file that had this name and has another one beside it now."""
        if self._file is None:
            return b""
        with os.scandir(self.path.parent) as beside:
            moved = next((entry.path for entry in beside if entry.inode() == self._file[1]), None)
        if moved is None:
            return b""
        with contextlib.suppress(FileNotFoundError), _opened(moved) as file:
            found = os.fstat(file.fileno())
            if (found.st_dev, found.st_ino) == self._file and found.st_size > self._offset:
                return self._after_mark(file.fileno(), limit) or b""
        return b""


def _opened(path: Path | str) -> FileIO:
    """A file to read; a pipe in its place holds nobody up.

    Raises:
        OSError: it cannot be read.
    """
    return FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


def tail_start(path: Path, lines: int) -> int:
    """Where the last so many lines of a file begin, as tail(1) counts them; 0 if it is not there.

    Raises:
        OSError: it cannot be read.
    """
    try:
        opened = _opened(path)
    except FileNotFoundError:
        return 0
    with opened:
        file = opened.fileno()
        end = size = os.fstat(file).st_size
        if lines == 0:
            return size
        # The newline at the very end ends the last line and begins none.
        if size and os.pread(file, 1, size - 1) == b"\n":
            end -= 1
        while end > 0:
            begin = max(0, end - _BLOCK)
            block = os.pread(file, end - begin, begin)
            count = block.count(b"\n")
            if count >= lines:
                for _ in range(lines):
                    block = block[: block.rindex(b"\n")]
                return begin + len(block) + 1
            lines -= count
            end = begin
        return 0
