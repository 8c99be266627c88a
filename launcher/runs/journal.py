"""An append-only file of JSON lines that survives parallel writers, truncation and a full disk.

Each writer adds whole lines in one write. What a full disk or two writers on a file system without
locks may have left half written is no line to a reader, and eats no line that comes after it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from launcher.runs.records import encode
from launcher.runs.run import take

_PATIENCE = 2.0
"""Seconds to wait for another writer."""


def append(path: Path, records: Iterable[msgspec.Struct]) -> None:
    """Add records, a line each.

    Raises:
        OSError: they cannot be written, or not all of them.
    """
    lines = "".join(encode(record, indent=None) + "\n" for record in records).encode()
    if not lines:
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        # On a file system without locks too: a local disk appends each write as a whole.
        with contextlib.suppress(OSError):
            take(descriptor, _PATIENCE)
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            lines = b"\n" + lines  # what was cut off must not eat ours
        written = os.write(descriptor, lines)
        if written < len(lines):
            os.write(descriptor, lines[written:])  # says why not all of it was
    finally:
        os.close(descriptor)


def lines(path: Path) -> Iterator[bytes]:
    """The lines of a journal, oldest first; none if there is no such file.

    Raises:
        OSError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            yield from file
    except (FileNotFoundError, NotADirectoryError):
        return
