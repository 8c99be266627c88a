"""An append-only file of JSON lines that survives parallel writers, truncation and a full disk.

Each writer adds whole lines in one write. A full disk, or two writers on a file system without locks, may
leave incomplete lines; readers ignore these, and the lines that follow stay valid.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import msgspec

from castoff.launcher.process.files import make_folders
from castoff.launcher.process.locks import take
from castoff.launcher.runs.records import encode

_PATIENCE = 2.0
"""Seconds to wait for another writer's lock."""

_LONGEST_LINE = 1 << 20
"""Bytes; longer lines are read in pieces, none of which is valid."""


def append(path: Path, records: Iterable[msgspec.Struct]) -> None:
    """Append records, one a line.

    Raises:
        OSError: the records cannot be written, or not all of them.
    """
    lines = "".join(encode(record, indent=None) + "\n" for record in records).encode()
    if not lines:
        return
    make_folders(path.parent)
    descriptor = _opened(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        # Without locks, write all the same: a local disk appends each write as a whole.
        with contextlib.suppress(OSError):
            take(descriptor, _PATIENCE)
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            lines = b"\n" + lines  # end the incomplete line before ours
        written = os.write(descriptor, lines)
        if written < len(lines):
            os.write(descriptor, lines[written:])  # raises the error that interrupted the first write
    finally:
        os.close(descriptor)


def lines(path: Path) -> Iterator[bytes]:
    """The lines of a journal, oldest first; none if there is no such file.

    Raises:
        OSError: the file cannot be read.
    """
    try:
        with os.fdopen(_opened(path, os.O_RDONLY), "rb") as file:
            yield from iter(partial(file.readline, _LONGEST_LINE), b"")
    except (FileNotFoundError, NotADirectoryError):
        return


def _opened(path: Path, flags: int) -> int:
    """The descriptor of a regular file; other kinds of files are refused, since a pipe would block."""
    descriptor = os.open(path, flags | os.O_NONBLOCK, 0o600)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is not a regular file")
