"""A log file that grows, read from where the last read ended."""

from __future__ import annotations

import mmap
import os
from io import FileIO
from pathlib import Path


class Tail:
    """A file that grows, may not exist yet, and may be truncated.

    It is opened for each read and not kept open. A thousand logs thus need only one descriptor, and network
    file systems, which update a file's size when it is opened, give the true size.
    """

    def __init__(self, path: Path, offset: int = 0):
        """`offset`: the byte to begin at."""
        self.path = path
        self.trouble: str | None = None
        """The error of the last read; None if it succeeded, or if the file is missing."""
        self.restarted = False
        """Whether the file was shorter at the last read than before, so that it was read from
        its beginning.
        """
        self._offset = offset

    @property
    def offset(self) -> int:
        """The byte at which the next read begins."""
        return self._offset

    def read(self, limit: int) -> bytes:
        """Read up to `limit` bytes that were added since the last read; none if the file cannot be read."""
        self.trouble = None
        try:
            with _opened(self.path) as file:
                self.restarted = os.fstat(file.fileno()).st_size < self._offset
                if self.restarted:
                    self._offset = 0
                data = os.pread(file.fileno(), limit, self._offset)
        except FileNotFoundError:
            return b""
        except OSError as error:
            self.trouble = error.strerror or str(error)
            return b""
        self._offset += len(data)
        return data


def _opened(path: Path | str) -> FileIO:
    """Open a file for reading; a pipe in its place does not block.

    Raises:
        OSError: the file cannot be read.
    """
    return FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


def tail_start(path: Path, lines: int) -> int:
    """The offset at which the last `lines` of a file begin, counted as by tail(1); 0 if there is no file.

    Raises:
        OSError: the file cannot be read.
    """
    if not path.exists() or not path.stat().st_size:
        return 0
    with _opened(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        end = len(text) - 1  # a newline at the very end ends the last line and begins none
        for _ in range(lines):
            if (end := text.rfind(b"\n", 0, end)) < 0:
                return 0
        return end + 1
