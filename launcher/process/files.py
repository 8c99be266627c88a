"""Writes files that appear complete or not at all, and makes folders that nobody else can write to."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO


@contextlib.contextmanager
def replacing(path: Path, mode: int = 0o600, *, durable: bool = True) -> Iterator[IO[bytes]]:
    """Open a draft next to `path` for writing. When the block ends without an error, it replaces `path`.

    A link or a device at `path` is replaced, never written through. `durable`: whether the new content must
    reach the disk before it replaces the old.

    Raises:
        OSError: the file cannot be written.
    """
    # The file's name is not part of the draft's, since it may have the maximum length already.
    draft, replaced = path.with_name(f".castoff-{os.urandom(6).hex()}"), False
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as file:
            yield file
            if durable:
                file.flush()
                os.fsync(descriptor)
        draft.replace(path)
        replaced = True
    finally:
        if not replaced:
            with contextlib.suppress(OSError):  # never made
                draft.unlink()


def replace(path: Path, content: str | bytes, mode: int = 0o600, *, durable: bool = True) -> None:
    """Write a file as `replacing` does. Text becomes UTF-8, surrogates the bytes that they represent.

    Raises:
        OSError: the file cannot be written.
    """
    with replacing(path, mode, durable=durable) as file:
        file.write(content.encode("utf-8", "surrogateescape") if isinstance(content, str) else content)


def make_folders(folder: Path, mode: int = 0o700) -> None:
    """Make a folder and its missing parents, each with this mode.

    `Path.mkdir(parents=True)` gives the mode only to the last folder. With the umask of many groups, others
    could write to the parents, and thus rename what is in them.

    Raises:
        OSError: a folder cannot be made, or a path exists and is not a folder.
    """
    if folder.is_dir():
        return
    for missing in (*folder.parents[::-1], folder):
        if missing.is_dir():
            continue
        try:
            missing.mkdir(mode=mode, exist_ok=True)
        except FileExistsError as error:  # raised if the path is a file, too
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(missing)) from error
