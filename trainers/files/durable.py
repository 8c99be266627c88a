"""Writes files that are complete on disk when a call returns, with checksums."""

from __future__ import annotations

import glob
import json
import os
import socket
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

_PIECE = 1 << 20
"""Bytes that are written and summed at a time: few enough to stay in the processor's cache."""

_SEAL = b',\n  "crc32": "%08x"\n}\n'
_SEAL_LENGTH = len(_SEAL % 0)

_open: set[int] = set()
"""Descriptors of files being written."""


class SummedFile:
    """A new file for `torch.save`, whose CRC-32 is computed while it is written.

    As a context manager: when it exits without an error, the file is on disk. An OSError while writing is
    raised as such, although torch.save turns it into a RuntimeError.
    """

    def __init__(self, path: Path):
        self._path = path
        self._refusal: OSError | None = None
        self.size = 0
        """Bytes written so far."""
        self.crc32 = 0
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        _open.add(self._descriptor)

    def write(self, data: bytes | memoryview) -> int:
        """Write all of the data; returns its number of bytes."""
        left = memoryview(data).cast("B")
        total = len(left)
        while left:
            with self._refusals():
                done = os.write(self._descriptor, left[:_PIECE])
            self.crc32 = zlib.crc32(left[:done], self.crc32)
            self.size += done
            left = left[done:]
        return total

    def flush(self) -> None:
        """Do nothing: writes are not buffered, but torch.save calls it."""

    def __enter__(self) -> SummedFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                with self._refusals():
                    os.fsync(self._descriptor)
        finally:
            _open.discard(self._descriptor)
            with self._refusals():
                os.close(self._descriptor)
        if self._refusal is not None:
            raise self._refusal

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Record an OSError, with the file's name."""
        try:
            yield
        except OSError as error:
            error.filename = str(self._path)
            self._refusal = self._refusal or error
            raise


def _leave_to_the_parent() -> None:
    """Close, in a forked child, the files being written.

    A loader's worker may live until the end of the training. A removed file that it has open takes space
    until then, and on NFS its folder cannot be removed.
    """
    for descriptor in _open:
        with suppress(OSError):
            os.close(descriptor)
    _open.clear()


os.register_at_fork(after_in_child=_leave_to_the_parent)


def sum_of(path: Path) -> int:
    """The CRC-32 of a file's contents."""
    total = 0
    block = memoryview(bytearray(_PIECE))
    with path.open("rb", buffering=0) as file:
        while length := file.readinto(block):
            total = zlib.crc32(block[:length], total)
    return total


def write_checksummed(path: Path, content: bytes) -> None:
    """Write the result of `checksummed` to a new file."""
    with SummedFile(path) as file:
        file.write(content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A context with a draft to write, which then is flushed to disk and replaces the file by a rename.

    If the context fails, the draft is removed and the file stays as it was.
    """
    draft = draft_of(path)
    try:
        _remove_drafts_of_killed_processes(draft)
        yield draft
        flush(draft)
        draft.replace(path)
    except BaseException:
        with suppress(OSError):  # on a full disk, free the draft's space
            draft.unlink(missing_ok=True)
        raise
    flush(path.parent)


def draft_of(path: Path) -> Path:
    """The path, in the same folder, of this process's draft of a file or folder."""
    return path.with_name(f".{path.name}.draft-{socket.gethostname()}-{os.getpid()}")


def _remove_drafts_of_killed_processes(draft: Path) -> None:
    """Remove drafts of the same file by killed processes of this host, which would fill the disk."""
    of_this_host, _, _ = draft.name.rpartition("-")
    for left in draft.parent.glob(f"{glob.escape(of_this_host)}-*"):
        _, _, pid = left.name.rpartition("-")
        if left == draft or (pid.isdecimal() and not _is_running(int(pid))):
            left.unlink(missing_ok=True)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's process
        pass
    return True


def replace_file(path: Path, content: bytes) -> None:
    """Create or replace a file by a rename; when this returns, it is on disk."""
    with replacing(path) as draft:
        draft.write_bytes(content)


def checksummed(content: Mapping[str, Any]) -> bytes:
    """A JSON object whose last member is a checksum of all bytes before it.

    Numbers that JSON lacks are written as Python's json does: NaN, Infinity.

    Raises:
        TypeError: a value is not a JSON type.
    """
    body = json.dumps(content, indent=2).removesuffix("\n}").encode()
    return body + _SEAL % zlib.crc32(body)


def read_checksummed(path: Path) -> dict[str, Any]:
    """Read what `write_checksummed` wrote, and verify its checksum.

    Raises:
        OSError: the file cannot be read.
        ValueError: the checksum does not match.
    """
    data = path.read_bytes()
    body = data[:-_SEAL_LENGTH]
    if data[len(body) :] != _SEAL % zlib.crc32(body):
        raise ValueError(f"{path.name} does not match its checksum")
    content: dict[str, Any] = json.loads(data)
    del content["crc32"]
    return content


def flush(path: Path) -> None:
    """Flush a file's contents, or a folder's entries, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
